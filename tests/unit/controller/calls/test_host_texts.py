"""Hosts that were printed before: the text is what it would be anew, and only what has changed is printed again."""

from __future__ import annotations

import pytest

from holdfast._base.proto_values import timestamp
from holdfast._sdk import json_view
from holdfast.v1 import host_pb2
from holdfast_controller.shell.rest import host_texts
from holdfast_controller.shell.rest.host_texts import HostTexts
from holdfast_controller.shell.rest.printed import text_of

HOSTILE = '","lastSeen":null,"'


def host(name: str = "h1", seen: float = 0.0, **labels: str) -> host_pb2.Host:
    gpus = [host_pb2.Gpu(uuid=f"GPU-{n}", index=n, model="H100", memory_bytes=80 << 30) for n in range(8)]
    made = host_pb2.Host(name=name, labels=labels, inventory=host_pb2.Inventory(cpu_count=64, gpus=gpus))
    if seen:
        made.last_seen.CopyFrom(timestamp(seen))
    return made


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the hosts that were printed anew."""
    names: list[str] = []
    real = json_view.host

    def noted(message: host_pb2.Host) -> dict[str, object]:
        names.append(message.name)
        return real(message)

    monkeypatch.setattr(json_view, "host", noted)
    return names


def text(texts: HostTexts, message: host_pb2.Host) -> str:
    anew = text_of(json_view.host(message))
    found = texts.text(message)
    assert found == anew
    return found


@pytest.mark.parametrize("seen", [0.0, 1_790_000_000.25])
def test_a_text_is_that_of_the_message_before_and_after_it_was_kept(seen: float) -> None:
    texts = HostTexts()
    for _ in range(2):
        text(texts, host(seen=seen, rack="r7"))
        text(texts, host("h2", seen, **{HOSTILE: HOSTILE, "lastSeen": "null"}))


def test_a_host_that_was_heard_since_is_not_printed_anew(printed: list[str]) -> None:
    texts = HostTexts()
    first = texts.text(host(seen=1_790_000_000.0))
    assert texts.text(host(seen=1_790_000_009.0)) != first
    assert texts.text(host(seen=0.0)) == first.replace('"2026-09-21T14:13:20Z"', "null")
    assert printed == ["h1"]


def test_a_host_that_has_changed_is_printed_anew(printed: list[str]) -> None:
    texts = HostTexts()
    texts.text(host())
    assert '"draining":true' in texts.text(host_pb2.Host(name="h1", draining=True))
    assert printed == ["h1", "h1"]


def test_texts_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch, printed: list[str]) -> None:
    monkeypatch.setattr(host_texts, "KEPT", 2)
    texts = HostTexts()
    for name in ("h1", "h2", "h3", "h3", "h1"):
        texts.text(host(name))
    assert printed == ["h1", "h2", "h3", "h1"]
