"""Connections over gRPC by those who make no call: they keep nobody else out, on either port."""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from tests.integration.controller.cluster import Certificates, Controller
from tests.integration.controller.conftest import certificates, config, daemon
from tests.integration.controller.process import Process, stub
from tests.security.floods.test_starved_daemons import listed, submitted

from holdfast._daemon.tls_door import PER_S, network_of
from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.calls import connection_bounds, syn_filter
from holdfast_controller.shell.calls.connection_bounds import (
    FEW,
    LEAST_ADMITTED,
    ConnectionBounds,
    beyond,
    crowding,
    shares,
)

__all__ = ["certificates", "config", "daemon"]
pytestmark = pytest.mark.anyio
FILES = 256
"""The controller's limit on open files: 128 connections, of which 32 may be strangers'."""
ELSEWHERE = "127.0.0.2"
TRIED_S = 30.0


@contextlib.asynccontextmanager
async def flood(
    port: int, count: int, files: TlsFiles | None = None, *, stays: bool = True
) -> AsyncIterator[list[int]]:
    """So many connections from another address, each opened again as soon as it is closed; counts those opened.

    With ``files`` each shows a certificate, and then says nothing; without it says nothing at all. ``stays``: until the
    controller closes it; otherwise it is closed at once.
    """
    context = None
    if files is not None:
        context = ssl.create_default_context(cafile=str(files.ca))
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(files.cert, files.key)
    opened = [0]

    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, local_addr=(ELSEWHERE, 0)
                )
                opened[0] += 1
                try:
                    while stays and await reader.read(4096):
                        pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.02 if stays else 0)

    tasks = [asyncio.get_running_loop().create_task(hold()) for _ in range(count)]
    try:
        yield opened
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def more_than(opened: list[int], count: int) -> None:
    """Return once the flood has opened more connections than these."""
    async with asyncio.timeout(60):
        while opened[0] <= count:  # noqa: ASYNC110  # it counts in the middle of what an event would wait for
            await asyncio.sleep(0.05)


async def gets_in(port: int, certificates: Certificates) -> set[str]:
    """What a user lists who connects now, and tries again for as long as a command does.

    On a busy machine the flood comes faster than it can be looked at, for a moment. Without any look it holds the port
    for as long as it likes.
    """
    deadline = time.monotonic() + TRIED_S
    while True:
        newcomer = Controller(port, certificates)
        try:
            return await listed(stub(newcomer))
        except grpc.aio.AioRpcError:
            if time.monotonic() > deadline:
                raise
        finally:
            await newcomer.close()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("certified", [False, True], ids=["half-open", "with a certificate"])
async def test_connections_on_which_nobody_calls_keep_no_other_address_out(
    daemon: Process, certified: bool
) -> None:
    controller = await daemon.ready(daemon.start("prlimit", f"--nofile={FILES}:{FILES}"))
    jobs = stub(controller)  # whose connection stays open
    made = await submitted(jobs)
    files = controller.certificates.files["user/ann"] if certified else None
    async with flood(controller.port, 200, files) as opened:
        await more_than(opened, 140)  # than the port takes at once
        for _ in range(3):
            assert await gets_in(controller.port, controller.certificates) == {made}
        # Who called before is no stranger.
        assert await listed(jobs) == {made}
    assert "connections.cut" in daemon.log
    assert "Traceback" not in daemon.log
    await controller.close()


def opened(*addresses: str) -> list[tuple[str, str]]:
    return [(f"{address} {port}", address) for port, address in enumerate(addresses)]


def test_strangers_within_what_they_may_hold_are_left_alone() -> None:
    assert crowding(opened(*["a"] * 100), 100) == []
    assert crowding([], 1) == []


def test_the_oldest_of_the_address_that_holds_most_are_cut() -> None:
    found = crowding(opened(*["b"] * 5, *["a"] * 100, *["b"] * 5), 80)
    assert found == [f"a {port}" for port in range(5, 5 + len(found))]
    assert 100 + 10 - len(found) <= 60


def test_of_an_address_with_few_none_is_cut() -> None:
    many = [f"address-{number}" for number in range(1000)]
    assert crowding(opened(*many * FEW), 10) == []
    assert len(crowding(opened(*many * (FEW + 1)), 10)) == 1000


def test_of_one_party_the_oldest_beyond_its_bound_are_cut() -> None:
    held = [("1", "user/ann"), ("2", "user/bob"), ("3", "user/ann"), ("4", "user/ann")]
    assert beyond(held, 2) == ["1"]


@contextlib.contextmanager
def served(family: socket.AddressFamily, address: str) -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """A listening socket of this process, and both ends of twelve connections to it."""
    with contextlib.ExitStack() as held:
        listening = held.enter_context(socket.create_server((address, 0), family=family))
        ends = []
        for _ in range(12):
            there = held.enter_context(socket.create_connection(listening.getsockname()[:2]))
            ends += [there, held.enter_context(listening.accept()[0])]
        yield listening, ends


@pytest.mark.parametrize(
    ("family", "address", "spelt"),
    [(socket.AF_INET, "127.0.0.1", "ipv4:127.0.0.1:{}"), (socket.AF_INET6, "::1", "ipv6:%5B::1%5D:{}")],
)
def test_who_has_called_keeps_a_connection_and_who_is_gone_is_forgotten(
    family: socket.AddressFamily, address: str, spelt: str
) -> None:
    with served(family, address) as (listening, ends):
        there, here = ends[::2], ends[1::2]
        ports = [each.getsockname()[1] for each in there]
        callers = {spelt.format(port): "user/ann" for port in (*ports[:2], 1)}
        watch = ConnectionBounds(callers, 4)
        watch.port = listening.getsockname()[1]
        watch.look()
        for each in here:
            each.setblocking(False)
        cut = {port for port, each in zip(ports, here, strict=True) if _is_shut(each)}
        assert len(cut) == len(ports) - 2 - FEW and not cut & set(ports[:2])
        assert list(callers) == [spelt.format(port) for port in ports[:2]]


def _is_shut(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_party_with_more_connections_than_it_can_use_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_bounds, "OF_ONE_PARTY", 5)
    with served(socket.AF_INET, "127.0.0.1") as (listening, ends):
        ports = [each.getsockname()[1] for each in ends[::2]]
        watch = ConnectionBounds({f"ipv4:127.0.0.1:{port}": "user/ann" for port in ports}, 40, 1 / 40)
        watch.port = listening.getsockname()[1]
        watch.look()
        for each in ends[1::2]:
            each.setblocking(False)
        assert [_is_shut(each) for each in ends[1::2]] == [True] * 7 + [False] * 5


def test_one_party_keeps_half_of_a_small_port_at_most() -> None:
    with served(socket.AF_INET, "127.0.0.1") as (listening, ends):
        ports = [each.getsockname()[1] for each in ends[::2]]
        watch = ConnectionBounds({f"ipv4:127.0.0.1:{port}": "user/ann" for port in ports}, 12, 1 / 12)
        watch.port = listening.getsockname()[1]
        watch.look()
        for each in ends[1::2]:
            each.setblocking(False)
        assert [_is_shut(each) for each in ends[1::2]] == [True] * 6 + [False] * 6


def test_a_look_is_for_many_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Semaphore(0)
    monkeypatch.setattr(connection_bounds, "PER_S", math.inf)  # none is one too soon
    watch = ConnectionBounds({}, 4_000)
    monkeypatch.setattr(watch, "look", looks.release)
    for _ in range(960):
        watch.begun()
    assert not looks.acquire(timeout=0.2)
    for _ in range(64):
        watch.begun()
    assert looks.acquire(timeout=180)


def test_one_that_calls_while_others_are_cut_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(socket.AF_INET, "127.0.0.1") as (listening, ends):
        callers = dict[str, str]()
        ports = [each.getsockname()[1] for each in ends[::2]]
        watch = ConnectionBounds(callers, 4)
        watch.port = listening.getsockname()[1]
        crowded = connection_bounds.crowding

        def calls_then(silent: list[tuple[str, str]], most: int) -> list[str]:
            callers[f"ipv4:127.0.0.1:{ports[0]}"] = "user/ann"
            return crowded(silent, most)

        monkeypatch.setattr(connection_bounds, "crowding", calls_then)
        watch.look()
        for each in ends[1::2]:
            each.setblocking(False)
        assert [_is_shut(each) for each in ends[1::2]] == [False, *[True] * 3, *[False] * 8]


def test_a_process_that_may_not_look_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", denied)
    watch = ConnectionBounds({}, 1)
    watch.look()
    watch.look()


def test_an_address_that_begins_too_many_is_let_in_less_and_less_and_then_as_before() -> None:
    admitted: dict[str, float] = {}
    for _ in range(4):
        admitted = shares(admitted, {"10.0.0.1": 8.0 * PER_S, "10.0.0.2": PER_S / 2})
    assert admitted == {"10.0.0.1": LEAST_ADMITTED}
    steady = shares({"10.0.0.1": 0.25}, {"10.0.0.1": float(PER_S)})
    assert steady == {"10.0.0.1": 0.25}
    looks = 0
    while admitted:
        admitted, looks = shares(admitted, {}), looks + 1
    assert looks == 10


@pytest.mark.parametrize(
    ("family", "at", "address"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.2"),
        (socket.AF_INET6, "::", "127.0.0.2"),
        (socket.AF_INET6, "::", "::1"),
    ],
)
def test_the_kernel_refuses_that_share_of_one_network_and_none_of_others(
    family: socket.AddressFamily, at: str, address: str
) -> None:
    others = {"127.0.0.1", "127.0.0.2", "127.0.0.3", "::1"} - {address}
    full = {f"10.0.0.{number}": 0.5 for number in range(60)} | {f"fd00:{number}::/64": 0.5 for number in range(60)}
    with socket.create_server((at, 0), family=family, backlog=4096, dualstack_ipv6=at == "::") as listening:
        syn_filter.refuse(listening, {**full, network_of(address): 1e-9})
        assert not any(connects(listening, address) for _ in range(30))
        assert all(connects(listening, other) for other in others if at == "::" or other != "::1")
        syn_filter.refuse(listening, {network_of(address): 0.5})
        assert 50 < sum(connects(listening, address) for _ in range(200)) < 150
        syn_filter.refuse(listening, {})
        assert all(connects(listening, address) for _ in range(30))


def connects(listening: socket.socket, source: str) -> bool:
    """Whether a request from that address is answered at once, and words pass."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family) as there:
        there.bind((source, 0))
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            there.connect(("::1" if family == socket.AF_INET6 else "127.0.0.1", listening.getsockname()[1]))
        if not select.select([], [there], [], 0.0)[1]:
            return False
        here, _ = listening.accept()
        with here:
            there.send(b"x")
            return here.recv(1) == b"x"


async def test_a_flood_of_handshakes_is_slowed_at_its_own_address(
    daemon: Process, certificates: Certificates
) -> None:
    controller = await daemon.ready(daemon.start())
    jobs = stub(controller)
    made = await submitted(jobs)
    async with flood(controller.port, 64, certificates.files["user/ann"], stays=False) as opened:
        async with asyncio.timeout(120):
            while "connections.cut" not in daemon.log:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.1)
        before, began = opened[0], time.monotonic()
        await asyncio.sleep(5)
        assert (opened[0] - before) / (time.monotonic() - began) < 4 * PER_S
        assert await gets_in(controller.port, controller.certificates) == {made}
        assert await listed(jobs) == {made}
    assert ELSEWHERE in daemon.log
    assert await gets_in(controller.port, controller.certificates) == {made}
    await controller.close()
