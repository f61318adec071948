"""Under which addresses other hosts reach the one of task 0."""

from __future__ import annotations

import fcntl
import socket
from dataclasses import replace
from typing import Any

import pytest

from holdfast.guard import addresses
from holdfast.guard.allocation import Allocation, read

FIRST = replace(read({}, "n1"), kind="named", tasks=2, hosts=("n1",))
NOT_AN_ADDRESS = ((socket.AF_INET, "not an address"),)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names lead to on this host, which has no route to elsewhere, and an address on an interface."""
    known: dict[str, list[str]] = {}

    def look_up(name: str, *_: object, **__: object) -> list[Any]:
        if name not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in known[name]]

    monkeypatch.setattr(addresses, "_NOWHERE", NOT_AN_ADDRESS)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    of_each = {b"lo": "127.0.0.1", b"eth0": "10.0.0.1"}

    def asked(_: object, __: int, request: bytes) -> bytes:
        name = request.rstrip(b"\0")
        if name not in of_each:
            raise OSError("it has none")
        return request[:20] + socket.inet_aton(of_each[name]) + request[24:]

    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "ib0"), (3, "eth0")])
    monkeypatch.setattr(fcntl, "ioctl", asked)
    return known


def test_a_host_whose_own_name_leads_to_loopback_is_reached_at_its_interfaces(names: dict[str, list[str]]) -> None:
    names["n1"] = ["127.0.1.1"]

    assert addresses.of_first(FIRST) == ["10.0.0.1"]
    assert addresses.of_this_host() == ["10.0.0.1"]


@pytest.mark.parametrize("first", ["127.0.0.1", "localhost", "10.0.0.9", "n9"])
def test_what_the_user_has_named_stays(names: dict[str, list[str]], first: str) -> None:
    names.update({"127.0.0.1": ["127.0.0.1"], "localhost": ["127.0.0.1"], "n9": ["10.0.0.9"]})
    names["10.0.0.9"] = ["10.0.0.9"]

    place: Allocation = replace(FIRST, hosts=(first,))
    assert addresses.of_first(place) == names[first]


def test_a_host_without_anything_else_has_its_loopback(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not names
    monkeypatch.setattr(socket, "if_nameindex", list)

    assert addresses.of_this_host() == ["127.0.0.1"]


def test_a_host_with_routes_of_ipv6_alone_has_an_address_of_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_NOWHERE", (*NOT_AN_ADDRESS, (socket.AF_INET6, "2001:db8::1")))
    monkeypatch.setattr(socket, "socket", _Routed)

    assert "fd00::7" in addresses.of_this_host()


class _Routed:
    """As much of a socket as chooses the address of a route: there is one by IPv6 alone."""

    def __init__(self, family: int, _: int) -> None:
        if family != socket.AF_INET6:
            raise OSError("no such family")

    def __enter__(self) -> _Routed:
        return self

    def __exit__(self, *_: object) -> None: ...

    def connect(self, _: object) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return "fd00::7", 9
