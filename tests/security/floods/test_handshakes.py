"""Floods of TLS handshakes by those who have no certificate, and guesses of codes: others get in meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator

import pytest
from tests.integration.controller.cluster import Certificates
from tests.integration.controller.conftest import certificates

from holdfast._daemon import tls_door
from holdfast._daemon.tls_door import BURST, OF_ALL, OF_ONE, PER_S, TlsDoor, Turns, open_door
from holdfast._security.server_tls import server_context

__all__ = ["certificates"]
pytestmark = pytest.mark.anyio
HANDSHAKE_S = 2.0
WITHIN_S = 20.0


class Echo(asyncio.Protocol):
    """Says back what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


@pytest.fixture
async def door(certificates: Certificates) -> AsyncIterator[TlsDoor]:
    """Open to anyone."""
    context = server_context(certificates.files["controller"], anyone=True)
    opened = await open_door(Echo, "127.0.0.1", 0, context, HANDSHAKE_S)
    yield opened
    opened.close()


async def said(door: TlsDoor, certificates: Certificates, source: str = "127.0.0.1") -> bytes:
    """The answer to a word over a new connection from an address of this machine."""
    trusted = ssl.create_default_context(cafile=str(certificates.files["controller"].ca))
    trusted.check_hostname = False
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=trusted, local_addr=(source, 0))
        writer.write(b"word")
        found = await reader.read(4)
        writer.close()
        return found


async def test_half_open_handshakes_of_one_address_keep_no_other_address_out(
    door: TlsDoor, certificates: Certificates
) -> None:
    with contextlib.ExitStack() as held:
        silent = []
        for _ in range(4 * OF_ONE):
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            each.bind(("127.0.0.2", 0))
            with contextlib.suppress(BlockingIOError):
                each.connect(("127.0.0.1", door.port))
            silent.append(each)
        await asyncio.sleep(0.5)
        assert await said(door, certificates) == b"word"
        # Three in four were closed at once.
        assert sum(_is_closed(each) for each in silent) == 3 * OF_ONE
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(*(loop.sock_recv(each, 1) for each in silent), return_exceptions=True)
    assert await said(door, certificates, "127.0.0.2") == b"word"


def _is_closed(silent: socket.socket) -> bool:
    try:
        return silent.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_half_open_handshakes_of_many_addresses_keep_no_other_address_out(
    door: TlsDoor, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "OF_ALL", 6)
    with contextlib.ExitStack() as held:
        for number in range(6):
            each = held.enter_context(socket.socket())
            each.setblocking(False)
            each.bind((f"127.0.1.{1 + number // 2}", 0))
            with contextlib.suppress(BlockingIOError):
                each.connect(("127.0.0.1", door.port))
        await asyncio.sleep(0.5)
        async with asyncio.timeout(HANDSHAKE_S / 2):
            assert await said(door, certificates) == b"word"


async def test_handshakes_that_are_begun_without_end_wait_for_their_own_address_alone(
    door: TlsDoor, certificates: Certificates
) -> None:
    made = 0

    async def flood() -> None:
        nonlocal made
        while True:
            with contextlib.suppress(OSError):
                await said(door, certificates, "127.0.0.2")
                made += 1

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(flood()) for _ in range(16)]
    began = time.monotonic()
    try:
        await asyncio.sleep(2)
        assert await said(door, certificates) == b"word"
        lasted = time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert made <= BURST + PER_S * lasted + 1


async def test_a_door_that_is_closed_drops_those_that_wait_and_takes_no_more(door: TlsDoor) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    for _ in range(3):
        await asyncio.sleep(0)
    door.close()
    async with asyncio.timeout(WITHIN_S):
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", door.port)


async def test_a_system_without_descriptors_is_asked_again(
    door: TlsDoor, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "NO_DESCRIPTOR_S", 0.01)
    loop = asyncio.get_running_loop()
    real, refusals = loop.sock_accept, 3

    async def accept(listening: socket.socket) -> tuple[socket.socket, object]:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise OSError(24, "Too many open files")
        return await real(listening)

    monkeypatch.setattr(loop, "sock_accept", accept)
    assert await said(door, certificates) == b"word"  # accepted before the refusals began
    assert await said(door, certificates) == b"word"
    assert refusals == 0


async def test_a_kernel_without_ipv6_listens_on_the_other_addresses_of_a_name(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, create_server = asyncio.get_running_loop(), socket.create_server

    async def both(host: str | None, port: int, **_: object) -> list[object]:
        tcp = (socket.SOCK_STREAM, 6, "")
        return [(socket.AF_INET6, *tcp, ("::1", port, 0, 0)), (socket.AF_INET, *tcp, ("127.0.0.1", port))]

    def without(address: tuple[str, int], *, family: int, **given: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create_server(address, family=family, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "getaddrinfo", both)
    monkeypatch.setattr(socket, "create_server", without)
    context = server_context(certificates.files["controller"], anyone=True)
    opened = await open_door(Echo, "localhost", 0, context, HANDSHAKE_S)
    monkeypatch.undo()
    assert await said(opened, certificates) == b"word"
    opened.close()


def test_turns_are_an_addresss_own_and_come_back() -> None:
    turns = Turns()
    assert [turns.begin("a", 100.0) for _ in range(BURST)] == [0.0] * BURST
    assert turns.begin("a", 100.0) == pytest.approx(1 / PER_S)
    assert turns.begin("a", 100.0) == pytest.approx(2 / PER_S)
    assert turns.begin("b", 100.0) == 0.0
    for _ in range(BURST + 2):
        turns.end("a", 101.0)
    assert turns.begin("a", 110.0) == 0.0


def test_connections_that_wait_are_bounded_by_address_and_together() -> None:
    turns = Turns()
    assert all(turns.begin("a", 0.0) is not None for _ in range(OF_ONE))
    assert turns.begin("a", 0.0) is None
    turns.end("a", 0.0)
    assert turns.begin("a", 0.0) is not None
    others = [turns.begin(f"b{number}", 0.0) for number in range(OF_ALL)]
    assert others.count(None) == OF_ONE
