"""A dev cluster of real daemons: started, wounded, healed, grown and stopped, with jobs running in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, started

from holdfast import dev

MakeCluster = Callable[..., Any]

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if not os.fork():
        os.setsid()
        os.fork()
time.sleep(600)
"""


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """One host without GPUs, for tests that leave it running and idle."""
    with started(tmp_path_factory.mktemp("lone") / "c", hosts=1, gpus=0) as cluster:
        yield cluster


def detach(cluster: Any, *args: str) -> str:
    """Start a job and return its id."""
    out: str = cluster.holdfast("run", "--detach", *args).stdout
    return out.split()[0]


def test_job_runs_on_through_the_death_of_both_daemons(lone: DevCluster, tmp_path: Path) -> None:
    cluster = lone
    go = tmp_path / "go"
    args = ("run", "--max-restarts", "0", "--", "sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 9")
    command = [sys.executable, "-m", "holdfast", *args]
    with subprocess.Popen(
        command, env=cluster.env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        try:
            cluster.until(lambda: any("until" in " ".join(a) for a in rank_arguments(cluster)))
            before = set(rank_arguments(cluster, pids=True))
            agent = cluster.agent_pid("host-0")
            cluster.kill_controller()
            cluster.restart()
            assert cluster.agent_pid("host-0") == agent
            cluster.kill_agent("host-0")
            cluster.restart()
            assert cluster.agent_pid("host-0") != agent
            assert before <= set(rank_arguments(cluster, pids=True)), "the rank was not touched"
            go.touch()
            assert running.wait(60) == 9
        finally:
            running.kill()


def rank_arguments(cluster: Any, *, pids: bool = False) -> list[Any]:
    """Arguments (or pids) of the live ranks in the cluster."""
    from holdfast.dev import processes

    jobs = {path.name for path in cluster.dir.glob("hosts/*/state/workers/*")}
    ranks = [pid for job in jobs for pid in cluster.ranks(job) if processes.arguments(pid)[:1] == ("sh",)]
    return ranks if pids else [processes.arguments(pid) for pid in ranks]


def test_added_host_takes_work(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(hosts=1, gpus=1)
    before = [cluster.pid("controller"), cluster.agent_pid("host-0")]
    dev.start(cluster.dir, hosts=2)
    assert [cluster.pid("controller"), cluster.agent_pid("host-0")] == before
    done = cluster.holdfast(
        "run", "--replicas", "2", "--gpus", "1", "--all", "--", "sh", "-c", "echo on $HOLDFAST_HOST"
    )
    assert "on host-0" in done.stdout
    assert "on host-1" in done.stdout


@pytest.mark.parametrize("daemons_dead", [False, True])
def test_stop_leaves_no_process_of_a_stubborn_job(
    make_cluster: MakeCluster, daemons_dead: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = make_cluster(hosts=2, gpus=1)
    job = detach(cluster, "--replicas", "2", "--gpus", "1", "--grace", "300s", "--", sys.executable, "-c", STUBBORN)
    # Each rank forks two sessions of two processes each.
    cluster.until(lambda: len(cluster.ranks(job)) >= 10)
    if daemons_dead:
        cluster.kill_controller()
        cluster.kill_agent("host-0")
    dev.stop(cluster.dir)
    assert not cluster.ranks(job)
    assert cluster.left() == []
    assert "Nothing is left." in capfd.readouterr().err


def test_stopped_cluster_comes_back_with_its_identities(lone: DevCluster) -> None:
    cluster = lone
    kept = {p: p.read_bytes() for p in cluster.dir.rglob("*") if p.suffix in (".pem", ".key", ".toml")}
    assert cluster.holdfast("run", "--", "true").returncode == 0
    dev.stop(cluster.dir)
    dev.start(cluster.dir)
    assert {p: p.read_bytes() for p in kept} == kept
    assert cluster.holdfast("run", "--", "true").returncode == 0


def test_workers_may_be_root_where_the_cluster_is(lone: DevCluster) -> None:
    done = lone.holdfast("run", "--", "id", "-u")
    assert str(os.geteuid()) in done.stdout.split()
