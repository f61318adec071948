"""Addresses of several controllers: what is written, what is dialled, and in which order."""

from __future__ import annotations

import socket

import pytest

from holdfast._base.addresses import Addresses, parse, target
from holdfast.errors import ConfigError

RESOLVED = {"a": ["10.0.0.1"], "b": ["10.0.0.2", "10.0.0.3"], "six": ["fd00::1"], "10.0.0.9": ["10.0.0.9"]}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        host.encode("idna")  # as Python does: an empty label, or one of more than 63 letters, is no ``OSError``
        if host not in RESOLVED:
            raise socket.gaierror("Name or service not known")
        return [(0, 0, 0, "", (ip, port)) for ip in RESOLVED[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.mark.parametrize(
    ("text", "dialled"),
    [
        ("a:7443", "a:7443"),
        ("none:7443", "none:7443"),
        ("a:7443,b:7444", "ipv4:10.0.0.1:7443,10.0.0.2:7444,10.0.0.3:7444"),
        ("a:7443, 10.0.0.9:1", "ipv4:10.0.0.1:7443,10.0.0.9:1"),
        ("none:7443,b:7444", "ipv4:10.0.0.2:7444,10.0.0.3:7444"),
        ("none:7443,neither:7444", "none:7443"),
        (f"ctl..lab:7443,{'x' * 64}:7443,b:7444", "ipv4:10.0.0.2:7444,10.0.0.3:7444"),
        ("a:7443,six:7444", "ipv6:[::ffff:10.0.0.1]:7443,[fd00::1]:7444"),
    ],
)
def test_a_channel_connects_to_whichever_answers(text: str, dialled: str) -> None:
    assert target(text) == dialled


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,", ",a:1", "a:1,b"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^agent\.toml: controller must be \"HOST:PORT\", not"):
        parse(text, "agent.toml: controller")


def test_the_next_one_is_dialled_until_one_leads_and_each_round_is_counted() -> None:
    several = Addresses("a:1, b:1, c:1")
    dialled = [several.current]
    rounds = []
    for _ in range(6):
        rounds.append(several.failed())
        dialled.append(several.current)
    assert dialled == ["a:1", "b:1", "c:1", "a:1", "b:1", "c:1", "a:1"]
    assert rounds == [False, False, True, False, False, True]
    several.failed()
    several.answered()
    assert [several.failed() for _ in range(3)] == [False, False, True]
    assert several.current == "b:1"


def test_a_single_one_is_a_round_of_its_own() -> None:
    alone = Addresses("a:1")
    assert alone.failed() and alone.current == "a:1" and len(alone) == 1
