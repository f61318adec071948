"""Daemons and shims are killed while jobs run, start and stop: no work is lost, and no exit."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, Watcher, exits, gone, rank_pids

from holdfast.dev import processes

ONCE = ("--max-restarts", "0")
UNTIL_GO = "until [ -e go ]; do sleep 0.02; done; exit"
DEAF = "import os, signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); time.sleep(600)"


@pytest.fixture(autouse=True)
def whole(cluster: DevCluster) -> Iterator[None]:
    """Whatever a failing test has left dead or running is not the next one's trouble."""
    yield
    for name, pid in cluster.pids().items():
        if name != "controller" and processes.stat(pid) is not None:
            os.kill(pid, signal.SIGCONT)
    cluster.restart()
    cluster.end(*(job.id for job in cluster.ask(lambda client: client.newest_jobs(20)) if job.state < 4))


def seconds(stamp: str) -> float:
    """Of the day, from RFC 3339."""
    hours, minutes, rest = stamp.removesuffix("Z").partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_stream_and_logs_go_on_where_they_stood_when_the_controller_comes_back(
    cluster: DevCluster, tmp_path: Path
) -> None:
    script = "i=0; until [ -e go ]; do echo $((i += 1)); sleep 0.01; done; exit 7"
    job_id = cluster.detach("--replicas", "2", *ONCE, "--", "sh", "-c", script, cwd=tmp_path)
    before = cluster.reach(job_id, "RUNNING")
    pids = rank_pids(before)
    with (
        Watcher(cluster, job_id) as watcher,
        cluster.typing("job", "watch", job_id, "-o", "json") as watch,
        cluster.typing("logs", "-f", "--rank", "0", job_id) as logs,
    ):
        cluster.until(lambda: watcher.of("GangStarted") and "GangStarted" in watch.out.read_text())
        cluster.until(lambda: len(logs.out.read_bytes()) > 100)
        cluster.kill_controller()
        time.sleep(0.5)
        assert not gone(pids.values())
        cluster.restart()
        assert rank_pids(cluster.job(job_id)) == pids, "nothing was started again"
        size = len(logs.out.read_bytes())
        cluster.until(lambda: len(logs.out.read_bytes()) > size)
        (tmp_path / "go").touch()
        cluster.until(lambda: watcher.ended)
        assert watch.ends() == logs.ends() == 0
        lines = logs.out.read_text().splitlines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    history = cluster.events(job_id)
    assert [event for _, event in watcher.events] == history
    assert [json.loads(line) for line in watch.out.read_text().splitlines()] == history
    assert watcher.cursors == sorted(set(watcher.cursors))
    assert len(watcher.outages) == 2, watcher.outages
    assert "back" in watcher.outages
    job = cluster.job(job_id)
    assert job["generation"] == 1
    assert 7 in [e["exitCode"] for e in exits(job).values()]
    # From a cursor in the middle, the rest and nothing else.
    with Watcher(cluster, job_id, cursor=watcher.cursors[3]) as rest:
        cluster.until(lambda: rest.ended)
    assert rest.cursors == watcher.cursors[4:]


@pytest.mark.parametrize("dead", [("controller",), ("host-0",), ("host-1", "controller", "host-0")])
def test_exits_arrive_though_daemons_were_dead_when_they_happened(
    cluster: DevCluster, tmp_path: Path, dead: tuple[str, ...]
) -> None:
    cluster.holdfast("host", "cordon", "host-1")
    codes = ("0", "7", "255", "0")
    jobs = []
    for number, code in enumerate(codes):
        (tmp_path / str(number)).mkdir()
        args = ("--name", "stays" if number == 3 else f"job{number}", *ONCE, "--", "sh", "-c", f"{UNTIL_GO} {code}")
        jobs.append(cluster.detach(*args, cwd=tmp_path / str(number)))
    pids = [rank_pids(cluster.reach(job, "RUNNING"))[0] for job in jobs]
    cluster.kill(*dead)
    (tmp_path / "0" / "go").touch()
    (tmp_path / "1" / "go").touch()
    os.kill(pids[2], signal.SIGUSR1)
    cluster.until(lambda: gone(pids[:3]))
    cluster.restart()
    succeeded, failed, killed = (cluster.reach(job, "SUCCEEDED", "FAILED") for job in jobs[:3])
    ends = [exits(job)[0] for job in (succeeded, failed, killed)]
    assert [job["state"].removeprefix("JOB_STATE_") for job in (succeeded, failed, killed)] == [
        "SUCCEEDED",
        "FAILED",
        "FAILED",
    ]
    assert [(e["reason"], e["exitCode"], e["signal"], e["lateExit"]) for e in ends] == [
        ("COMPLETED", 0, None, None),
        ("NONZERO_EXIT", 7, None, None),
        ("SIGNALED", None, 10, None),
    ]
    assert rank_pids(cluster.job(jobs[3])) == {0: pids[3]}
    assert not gone(pids[3:])
    (tmp_path / "3" / "go").touch()
    cluster.reach(jobs[3], "SUCCEEDED")
    cluster.holdfast("host", "uncordon", "host-1")


def test_rank_that_fails_while_all_daemons_are_dead_is_answered_by_a_restart(
    cluster: DevCluster, tmp_path: Path
) -> None:
    script = "echo $HOLDFAST_GENERATION $RANK >> started; [ $HOLDFAST_GENERATION = 2 ] && exit 0; exec sleep 600"
    job_id = cluster.detach("--replicas", "2", "--gpus", "2", "--", "sh", "-c", script, cwd=tmp_path)
    before = cluster.reach(job_id, "RUNNING")
    pids = rank_pids(before)
    cluster.kill(*cluster.pids())
    os.kill(pids[2], signal.SIGKILL)
    cluster.until(lambda: gone([pids[2]]))
    assert not gone(pids.values())
    cluster.restart()
    job = cluster.reach(job_id, "SUCCEEDED")
    assert gone(pids.values())
    assert (exits(job, generation=1)[2]["reason"], exits(job, generation=1)[2]["signal"]) == ("SIGNALED", 9)
    assert {exits(job, generation=1)[rank]["reason"] for rank in (0, 1, 3)} == {"STOPPED"}
    assert [exits(job)[rank]["exitCode"] for rank in range(4)] == [0] * 4
    assert [worker["host"] for worker in job["workers"]] == [worker["host"] for worker in before["workers"]]
    started = sorted((tmp_path / "started").read_text().splitlines())
    assert started == sorted(f"{generation} {rank}" for generation in (1, 2) for rank in range(4))
    assert job["recoveries"][0]["endRelatedTask"] == "workerpool1-0 rank 2"


def test_controller_killed_in_pending_starts_the_gang_once(cluster: DevCluster, tmp_path: Path) -> None:
    script = "echo $HOLDFAST_GENERATION $RANK >> started"
    os.kill(cluster.pid("host-1"), signal.SIGSTOP)
    job_id = cluster.detach("--replicas", "2", "--gpus", "2", "--", "sh", "-c", script, cwd=tmp_path)
    waiting = cluster.reach(job_id, "PENDING")
    assert "host-1" in waiting["waitReason"]
    cluster.kill_controller()
    os.kill(cluster.pid("host-1"), signal.SIGCONT)
    cluster.restart()
    job = cluster.reach(job_id, "SUCCEEDED")
    assert (job["attempt"], job["generation"], job["recoveries"]) == (1, 1, [])
    assert sorted((tmp_path / "started").read_text().splitlines()) == [f"1 {rank}" for rank in range(4)]
    assert sorted(exits(job)) == [0, 1, 2, 3]


def test_agent_killed_in_pending_starts_the_gang_once(cluster: DevCluster, tmp_path: Path) -> None:
    script = "echo $HOLDFAST_GENERATION $RANK >> started"
    cluster.kill_agent("host-1")
    job_id = cluster.detach("--replicas", "2", "--gpus", "2", "--", "sh", "-c", script, cwd=tmp_path)
    cluster.reach(job_id, "PENDING", "QUEUED")
    cluster.restart()
    job = cluster.reach(job_id, "SUCCEEDED")
    assert (job["attempt"], job["generation"]) == (1, 1)
    assert sorted((tmp_path / "started").read_text().splitlines()) == [f"1 {rank}" for rank in range(4)]


def test_cancelled_while_its_agent_was_dead_ends_when_it_is_back(cluster: DevCluster, tmp_path: Path) -> None:
    job_id = cluster.detach("--", "sh", "-c", UNTIL_GO, cwd=tmp_path)
    job = cluster.reach(job_id, "RUNNING")
    host, pids = job["workers"][0]["host"], rank_pids(job)
    cluster.kill_agent(host)
    cluster.holdfast("cancel", job_id)
    assert cluster.job(job_id)["state"] in ("JOB_STATE_CANCELLING", "JOB_STATE_RUNNING")
    assert host in cluster.job(job_id)["waitReason"]
    assert not gone(pids.values())
    cluster.restart()
    assert exits(cluster.reach(job_id, "CANCELLED"))[0]["reason"] == "STOPPED"
    assert gone(pids.values())


@pytest.mark.parametrize("dead", [(), ("agent",), ("agent", "controller")])
def test_deaf_worker_is_killed_after_the_grace_and_not_before(
    cluster: DevCluster, tmp_path: Path, dead: tuple[str, ...]
) -> None:
    job_id = cluster.detach("--grace", "2s", "--", sys.executable, "-c", DEAF, cwd=tmp_path)
    job = cluster.reach(job_id, "RUNNING")
    pids = rank_pids(job).values()
    cluster.until(lambda: (tmp_path / "deaf").exists())
    asked = time.time()
    cluster.ask(lambda client: client.cancel_job(job_id))
    cluster.until(
        lambda: any("stopping" in j.read_text() for j in cluster.dir.rglob(f"workers/{job_id}/*/*.journal"))
    )
    cluster.kill(*(job["workers"][0]["host"] if name == "agent" else name for name in dead))
    cluster.until(lambda: gone(pids))
    took = time.time() - asked
    assert 2 <= took < 3.5, "the grace, and not a second more"
    if dead:
        cluster.restart()
    ended = exits(cluster.reach(job_id, "CANCELLED"))[0]
    assert (ended["reason"], ended["signal"], ended["exitCode"]) == ("STOPPED", 9, None)
    (asked_at,) = [e["time"] for e in cluster.events(job_id) if e["type"] == "CancelRequested"]
    assert 2 <= (seconds(ended["endTime"]) - seconds(asked_at)) % 86400 < 3.5


def test_worker_that_listens_is_gone_at_once(cluster: DevCluster) -> None:
    job_id = cluster.detach("--grace", "300s", "--", "sleep", "600")
    cluster.reach(job_id, "RUNNING")
    cluster.ask(lambda client: client.cancel_job(job_id))
    cluster.reach(job_id, "CANCELLED")


FAMILY = """
import os, signal, sys, time
if os.environ["HOLDFAST_GENERATION"] != "1":
    sys.exit(0)
signal.signal(15, signal.SIG_IGN)
if not os.fork():
    os.setsid()  # a daemon: it leaves session, group and parent
    os.fork()
time.sleep(600)
"""


@pytest.mark.parametrize("with_agent", [False, True])
def test_death_of_a_shim_is_told_and_leaves_nothing_of_its_generation(
    cluster: DevCluster, tmp_path: Path, with_agent: bool
) -> None:
    args = ("--replicas", "2", "--gpus", "1", "--grace", "1s")
    job_id = cluster.detach(*args, "--", sys.executable, "-c", FAMILY, cwd=tmp_path)
    before = cluster.reach(job_id, "RUNNING")
    cluster.until(lambda: len(cluster.ranks(job_id)) == 6)
    old = set(cluster.ranks(job_id))
    victim = before["workers"][1]
    if with_agent:
        cluster.kill_agent(victim["host"])
    os.kill(victim["shimPid"], signal.SIGKILL)
    if with_agent:
        cluster.until(lambda: gone([victim["shimPid"]]))
        cluster.restart()
    job = cluster.reach(job_id, "SUCCEEDED")
    assert gone(old)
    assert cluster.ranks(job_id) == {}
    lost = exits(job, generation=1)[1]
    assert (lost["reason"], lost["exitCode"], lost["signal"]) == ("LOST_SHIM_DIED", None, None)
    assert exits(job, generation=1)[0]["reason"] == "STOPPED"
    assert job["generation"] == 2
    assert [worker["host"] for worker in job["workers"]] == [worker["host"] for worker in before["workers"]]
    assert job["recoveries"][0]["endReason"] == "LOST_SHIM_DIED"


def test_timeout_counts_on_through_the_controllers_death(cluster: DevCluster) -> None:
    with cluster.typing("run", "--timeout", "4s", "--", "sleep", "600") as run:
        run.says("generation 1 is running")
        began = time.monotonic()
        cluster.kill_controller()
        cluster.restart()
        assert run.ends(30) == 124
        assert time.monotonic() - began < 20
