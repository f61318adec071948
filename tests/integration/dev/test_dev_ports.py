"""Ports of dev clusters that are started at the same moment, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc.aio
import pytest
from tests.integration.dev.test_dev_cluster import STAND_INS, left

from holdfast import dev
from holdfast.dev import layout, plan, ports
from holdfast.dev.layout import Layout
from holdfast.dev.plan import Cluster
from holdfast.dev.ports import Reserved

EACH = 4
"""Ports of a controller: gRPC, HTTP, metrics, the web page."""
# Neither goes on before both have chosen, among as many ports as they need together.
START = """
import sys
from pathlib import Path
from holdfast import dev
from holdfast.dev import plan, ports
plan.CONTROLLER_PORTS = [int(word) for word in sys.argv[2:]]
choose = ports.choose
def chosen(*given, **named):
    found = choose(*given, **named)
    print("chosen", flush=True)
    sys.stdin.read(1)
    return found
ports.choose = chosen
dev.start(Path(sys.argv[1]))
"""


def free_ports(count: int) -> list[int]:
    """Ports outside the range of outgoing connections that are free at present."""
    with Reserved() as reserved:
        found = (port for port in plan.CONTROLLER_PORTS if reserved.take([port]))
        return [next(found) for _ in range(count)]


@pytest.fixture
def directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_INS))
    found = [tmp_path / name for name in ("one", "two")]
    yield found
    for directory in found:
        if (directory / "dev.toml").exists():
            dev.stop(directory)
        assert not left(directory)


def test_two_clusters_that_are_started_at_once_share_no_port(directories: list[Path]) -> None:
    words = [str(port) for port in free_ports(2 * EACH)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(directory), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for directory in directories
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "chosen\n"
    said = [process.communicate("x", timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    found = [layout.load(Layout(directory)) for directory in directories]
    used = [port for each in found if each for port in ports_of(each)]
    assert len(set(used)) == 2 * EACH
    assert len({host.ports for each in found if each for host in each.hosts}) == 2


def ports_of(cluster: Cluster) -> list[int]:
    """Those of its controller."""
    return [cluster.port, cluster.http_port, cluster.metrics_port, cluster.web_port]


def test_of_many_that_choose_at_once_no_two_choose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 8
    monkeypatch.setattr(plan, "CONTROLLER_PORTS", free_ports(EACH * count))
    with contextlib.ExitStack() as held, ThreadPoolExecutor(count) as threads:
        reserved = [held.enter_context(Reserved()) for _ in range(count)]
        found = list(threads.map(lambda each: ports.choose(None, each, hosts=2, gpus=0, port=None), reserved))
    used = [port for each in found for port in ports_of(each)]
    assert len(set(used)) == EACH * count
    assert len({host.ports for each in found for host in each.hosts}) == 2 * count


async def test_daemons_listen_on_what_is_reserved_for_them_and_then_it_is_taken() -> None:
    one, two = free_ports(2)
    with Reserved() as mine, Reserved() as others:
        assert mine.take([one]) and mine.take([two])
        assert not others.take([one])
        served = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        assert served.add_insecure_port(f"127.0.0.1:{one}") == one
        await served.start()
        listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", two)
    with Reserved() as others:
        assert not others.take([one]) and not others.take([two])
    listening.close()
    await served.stop(None)


def test_a_port_in_use_is_not_taken_nor_is_any_of_its_block() -> None:
    with socket.socket() as used, Reserved() as reserved:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        assert not reserved.take([port])
        assert not reserved.take([port - 1, port, port + 1])
    with Reserved() as reserved:
        assert reserved.take([port])
