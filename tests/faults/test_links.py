"""Slow, lossy, flapping and half-closed links, and a controller that stands still: nobody is given up for it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, rank_pids, started
from tests.faults.proxy import Held, held

from holdfast.client import Client
from holdfast.dev import processes
from holdfast.v1 import host_pb2

# A link may be bad for 4 s before its host is suspect, and for 5 s before it is given up.
LEASES = "heartbeat_interval = 0.5\nsuspect_after = 4\nlease = 4\nlost_after = 5\n"
BAD_S = 1.5
"""Less than that by far, since this machine has its own pauses."""
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.1)\nsys.exit(7)"
ONCE = ("--max-restarts", "0", "--gpus", "1", "--replicas", "2")


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DevCluster, list[Held]]]:
    """Two hosts with a GPU each, every one behind a proxy of its own."""
    with (
        contextlib.ExitStack() as links,
        started(tmp_path_factory.mktemp("links") / "c", hosts=2, gpus=1) as cluster,
    ):
        cluster.kill("controller", "host-0", "host-1")
        controller = cluster.dir / "controller.toml"
        controller.write_text(controller.read_text() + LEASES)
        proxies = []
        for host in ("host-0", "host-1"):
            path = cluster.dir / "hosts" / host / "agent.toml"
            text = path.read_text()
            port = re.search(r'controller = "127.0.0.1:(\d+)"', text)
            assert port is not None
            proxies.append(links.enter_context(held(("127.0.0.1", int(port[1])))))
            path.write_text(text.replace(port[0], f'controller = "127.0.0.1:{proxies[-1].proxy.port}"'))
        cluster.restart()
        yield cluster, proxies


def begin(cluster: DevCluster, stop: os.PathLike[str]) -> tuple[str, dict[int, int]]:
    """A rank on each host that runs until ``stop`` is there, and then exits with 7; its id and pids."""
    cluster.make_idle()
    job = cluster.detach(*ONCE, "--", sys.executable, "-c", WAITS, str(stop))
    return job, rank_pids(cluster.reach(job, "RUNNING"))


def check_undisturbed(cluster: DevCluster, job: str, pids: dict[int, int], given_up: int) -> None:
    """The job runs as it did, and no more hosts have been given up than before."""
    now = cluster.job(job)
    assert (now["state"], now["generation"], rank_pids(now)) == ("JOB_STATE_RUNNING", 1, pids)
    assert losses(cluster) == given_up


def losses(cluster: DevCluster) -> int:
    """How often a host was given up so far."""
    return (cluster.dir / "controller.log").read_text().count('"HostLost"')


def ready(cluster: DevCluster) -> bool:
    return all(host.state == host_pb2.HOST_STATE_READY for host in cluster.ask(Client.list_hosts))


def heard_again(cluster: DevCluster) -> None:
    """Wait until each host has been heard from now on; one counts as ready for a while after it fell silent."""
    since = time.time()
    cluster.until(lambda: all(host.last_seen.ToSeconds() > since for host in cluster.ask(Client.list_hosts)), 60)
    cluster.until(lambda: ready(cluster), 60)


def test_bad_links_kill_nothing_and_lose_no_exit(linked: tuple[DevCluster, list[Held]], tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    cluster, proxies = linked
    before, folder = losses(cluster), tmp_path_factory.mktemp("bad")
    for link in proxies:
        link.proxy.delay_s = 0.15
    job, pids = begin(cluster, folder / "stop")
    for way in ("up", "down"):  # lost for a while, in one direction
        for link in proxies:
            link.do(link.proxy.stall(way))
        time.sleep(BAD_S)
        for link in proxies:
            link.do(link.proxy.flow())
        heard_again(cluster)
    dialled = [link.proxy.accepted for link in proxies]
    for _ in range(4):  # flapping
        for link in proxies:
            link.do(link.proxy.cut())
        time.sleep(0.5)
    cluster.until(lambda: all(link.proxy.accepted > n for link, n in zip(proxies, dialled, strict=True)), 60)
    heard_again(cluster)
    for way in ("up", "down"):
        proxies[0].do(proxies[0].proxy.half_close(way))
    heard_again(cluster)
    check_undisturbed(cluster, job, pids, before)
    # The ranks end while nothing gets through, and their exits arrive once.
    for link in proxies:
        link.do(link.proxy.stall("up", "down"))
    (folder / "stop").touch()
    cluster.until(lambda: not cluster.ranks(job), 60)
    for link in proxies:
        link.do(link.proxy.cut())
        link.do(link.proxy.flow())
        link.proxy.delay_s = 0.0
    done = cluster.reach(job, "FAILED")
    assert {rank: end["exitCode"] for rank, end in exits(done).items()} == {0: 7, 1: 7}


def test_controller_that_stood_still_past_the_lease_gives_nobody_up_and_keeps_its_store(
    linked: tuple[DevCluster, list[Held]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster, _ = linked
    cluster.until(lambda: ready(cluster), 60)
    before, folder = losses(cluster), tmp_path_factory.mktemp("still")
    job, pids = begin(cluster, folder / "stop")
    leader = cluster.pid("controller")
    os.kill(leader, signal.SIGSTOP)
    try:
        cluster.until(lambda: processes.stat(leader).state == "T", 60)  # type: ignore[union-attr]
        began = time.monotonic()
        command = [sys.executable, "-m", "holdfast_controller", "--config", str(cluster.dir / "controller.toml")]
        second = subprocess.run(command, capture_output=True, text=True, timeout=180, env=cluster.env)
        assert second.returncode == 1
        assert f"Another controller (pid {leader}) runs on" in second.stderr
        (folder / "stop").touch()
        cluster.until(lambda: not cluster.ranks(job), 60)
        time.sleep(max(0.0, 6.0 - (time.monotonic() - began)))  # longer than lost_after
    finally:
        os.kill(leader, signal.SIGCONT)
    done = cluster.reach(job, "FAILED")
    assert {rank: end["exitCode"] for rank, end in exits(done).items()} == {0: 7, 1: 7}
    assert (done["generation"], rank_pids(done).keys()) == (1, pids.keys())
    cluster.until(lambda: ready(cluster), 60)
    assert losses(cluster) == before
    assert cluster.pid("controller") == leader
