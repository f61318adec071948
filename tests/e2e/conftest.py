"""Dev clusters of real daemons: one for each test that asks, or one for all that share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, gone, started
from tests.support.whole_run import reruns

from holdfast.client import Client
from holdfast.v1 import host_pb2


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., DevCluster]]:
    """Call it with ``hosts=2, gpus=2`` for a running cluster; it is stopped when the test ends."""
    with contextlib.ExitStack() as clusters:
        made = 0

        def make(hosts: int = 2, gpus: int = 2) -> DevCluster:
            nonlocal made
            made += 1
            return clusters.enter_context(started(tmp_path / f"c{made}", hosts=hosts, gpus=gpus))

        yield make


class Shared:
    """Clusters for all modules that a process runs, each from the first test that asks until the last in this folder.

    Idle ones take some of the processor from whatever comes after.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: dict[int, DevCluster] = {}

    def get(self, folders: pytest.TempPathFactory, hosts: int, gpus: int) -> DevCluster:
        if hosts not in self._running:
            folder = folders.mktemp(f"{hosts}-hosts") / "c"
            self._running[hosts] = self._stack.enter_context(started(folder, hosts=hosts, gpus=gpus))
        return self._running[hosts]

    def end(self) -> None:
        self._running.clear()
        self._stack.close()


_shared = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    yield
    if reruns.runs_again(item):
        return
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        _shared.end()


@pytest.fixture(scope="session", autouse=True)
def _ended() -> Iterator[None]:
    """Also where the run is interrupted."""
    yield
    _shared.end()


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> DevCluster:
    """Two hosts with two GPUs each."""
    return _shared.get(tmp_path_factory, hosts=2, gpus=2)


@pytest.fixture(scope="module")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> DevCluster:
    """Three hosts with one GPU each."""
    return _shared.get(tmp_path_factory, hosts=3, gpus=1)


@pytest.fixture(scope="module")
def cluster(two_hosts: DevCluster) -> Iterator[DevCluster]:
    """Two hosts with two GPUs each. Other modules have run jobs there; what this one leaves is ended."""
    yield two_hosts
    two_hosts.show_logs()
    two_hosts.make_idle()


@pytest.fixture(scope="module")
def trio(three_hosts: DevCluster) -> Iterator[DevCluster]:
    """Three hosts with one GPU each, as ``cluster``; see ``idle``."""
    yield three_hosts
    three_hosts.show_logs()
    three_hosts.make_idle()


@pytest.fixture
def idle(trio: DevCluster) -> Iterator[None]:
    """Whatever a test has left dead, cordoned or running on ``trio`` is not the next one's trouble."""
    yield
    trio.make_idle()


@pytest.fixture(autouse=True)
def afresh(request: pytest.FixtureRequest) -> None:
    """A test that is run again meets its shared cluster as the first time: whole, with the jobs of its module alone."""
    began = request.node.stash.setdefault(_BEGAN, time.time())
    if getattr(request.node, "execution_count", 1) > 1:
        for name in {"cluster", "trio"} & set(request.fixturenames):
            shared = request.getfixturevalue(name)
            if isinstance(shared, DevCluster):
                shared.make_idle(since=began)


_BEGAN = pytest.StashKey[float]()
"""When a test was first begun, as Unix time."""


@pytest.fixture
def alive(cluster: DevCluster) -> Iterator[None]:
    """After each test the same daemons as before it still answer."""
    before = cluster.pids()
    yield
    assert cluster.pids() == before
    assert not gone(before.values())
    hosts = {host.name: host.state for host in cluster.ask(Client.list_hosts)}
    assert [hosts[name] for name in ("host-0", "host-1")] == [host_pb2.HOST_STATE_READY] * 2


@pytest.fixture(scope="module")
def serving(cluster: DevCluster) -> Iterator[None]:
    """After all of them the cluster still runs jobs, on every host."""
    yield
    done = cluster.holdfast(
        "run", "--replicas", "2", "--gpus", "2", "--all", "--", "sh", "-c", "echo on $HOLDFAST_HOST"
    )
    assert "on host-0" in done.stdout and "on host-1" in done.stdout
