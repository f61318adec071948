"""Daemons die while a job is paused, retried or moved: each story goes on as decided, and nothing doubles."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, gone
from tests.e2e.lifecycle_jobs import STAY, TELL, ends, hosts_of, job_file, newest, pids_of, runs, submit

pytestmark = pytest.mark.usefixtures("idle")
FIRST, SECOND = "workerpool0-0", "workerpool1-0"
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done; exit 0"


def check_runs(folder: Path, *expected: tuple[int, int]) -> None:
    """These ranks were started, by (generation, rank), each once."""
    assert [(run.generation, run.rank) for run in runs(folder)] == sorted(expected)


def test_pause_asked_while_all_daemons_die_is_kept(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} {UNTIL_GO}")
    before = trio.reach(job_id, "RUNNING")
    trio.until(lambda: len(runs(tmp_path)) == 2)
    trio.kill(hosts_of(before)[SECOND])
    trio.holdfast("job", "pause", job_id)
    trio.until(lambda: gone([pids_of(before)[FIRST]]), 60)
    waiting = trio.job(job_id)
    host = hosts_of(before)[SECOND]
    assert waiting["waitReason"] == (
        f"being paused; waits for its workers to be gone from {host} ({host} not connected)"
    )
    assert waiting["state"] == "JOB_STATE_RUNNING"
    trio.kill("controller")
    trio.restart()
    paused = trio.reach(job_id, "PAUSED")
    assert gone(pids_of(before).values())
    assert ends(paused) == {(1, 0): "STOPPED", (1, 1): "STOPPED"}
    trio.kill("controller")
    trio.restart()
    assert trio.job(job_id)["state"] == "JOB_STATE_PAUSED"
    (tmp_path / "go").touch()
    trio.holdfast("job", "resume", job_id)
    done = trio.reach(job_id, "SUCCEEDED")
    assert (done["attempt"], done["generation"]) == (2, 2)
    check_runs(tmp_path, (1, 0), (1, 1), (2, 0), (2, 1))


def test_pause_while_it_is_prepared_leaves_nothing_and_is_resumed(trio: DevCluster, tmp_path: Path) -> None:
    os.kill(trio.agent_pid("host-1"), signal.SIGSTOP)
    try:
        job_id = submit(trio, tmp_path, f"{TELL} exit 0", workers=3)
        trio.reach(job_id, "PENDING")
        trio.holdfast("job", "pause", job_id)
        assert "host-1" in trio.job(job_id)["waitReason"]
    finally:
        os.kill(trio.agent_pid("host-1"), signal.SIGCONT)
    trio.reach(job_id, "PAUSED")
    assert runs(tmp_path) == []
    trio.holdfast("job", "resume", job_id)
    done = trio.reach(job_id, "SUCCEEDED")
    assert (done["attempt"], done["generation"]) == (2, 2)
    check_runs(tmp_path, (2, 0), (2, 1), (2, 2))
    assert sorted(ends(done)) == [(2, 0), (2, 1), (2, 2)], "what was never launched owes no end"


def test_retry_waits_for_the_host_whose_agent_died_and_starts_once(trio: DevCluster, tmp_path: Path) -> None:
    fails = "[ $HOLDFAST_ATTEMPT = 1 ] && [ $RANK = 1 ] && { until [ -e fail ]; do sleep 0.05; done; exit 5; }"
    script = f"{TELL} {fails}; [ $HOLDFAST_ATTEMPT = 1 ] && {STAY}; exit 0"
    job_id = submit(trio, tmp_path, script, maxWorkerRestarts=0, maxJobRetries=1)
    before = trio.reach(job_id, "RUNNING")
    trio.until(lambda: len(runs(tmp_path)) == 2)
    silent = hosts_of(before)[FIRST]
    trio.kill(silent)
    (tmp_path / "fail").touch()
    words = f"being placed again; waits for its workers to be gone from {silent} ({silent} not connected)"
    trio.until(lambda: trio.job(job_id)["waitReason"] == words, 60)
    assert not gone([pids_of(before)[FIRST]]), "nobody is there to stop it, so nothing starts beside it"
    trio.kill("controller")
    trio.restart()
    done = trio.reach(job_id, "SUCCEEDED")
    assert (done["attempt"], done["generation"]) == (2, 2)
    # Not even where it is the first that is back.
    assert hosts_of(before)[SECOND] not in hosts_of(done).values(), "it failed there, and another one is free"
    check_runs(tmp_path, (1, 0), (1, 1), (2, 0), (2, 1))


def test_output_and_status_follow_the_job_to_another_host(trio: DevCluster, tmp_path: Path) -> None:
    script = f"{TELL} echo out $HOLDFAST_ATTEMPT; echo err $HOLDFAST_ATTEMPT >&2; exit $((HOLDFAST_ATTEMPT + 2))"
    file = job_file(tmp_path, script, workers=1, maxWorkerRestarts=0, maxJobRetries=2)
    done = trio.holdfast("submit", str(file), "--wait", check=False, timeout=120)
    assert done.returncode == 5, "the last generation's"
    # Of different hosts, so generations that follow each other at once may come in another order.
    assert sorted(done.stdout.splitlines()) == ["out 1", "out 2", "out 3"]
    told = sorted(line for line in done.stderr.splitlines() if line.startswith("err"))
    assert told == ["err 1", "err 2", "err 3"]
    assert len({run.host for run in runs(tmp_path)}) > 1
    assert trio.job(newest(trio))["attempt"] == 3


def test_drain_moves_its_worker_alone_though_the_controller_dies(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} [ $HOLDFAST_GENERATION = 2 ] && exit 0; {STAY}")
    before = trio.reach(job_id, "RUNNING")
    trio.holdfast("host", "drain", hosts_of(before)[FIRST], "--deadline", "4s")
    trio.kill("controller")
    trio.restart()
    done = trio.reach(job_id, "SUCCEEDED")
    assert hosts_of(done)[SECOND] == hosts_of(before)[SECOND]
    assert hosts_of(done)[FIRST] not in hosts_of(before).values()
    assert [r["endReason"] for r in done["recoveries"]] == ["DRAINED"]


def test_worker_that_restarts_alone_is_paused_and_resumed_with_its_peers(trio: DevCluster, tmp_path: Path) -> None:
    crash = "[ $RANK = 1 ] && [ $HOLDFAST_GENERATION = 1 ] && exit 9"
    job_id = submit(trio, tmp_path, f"{TELL} {crash}; {UNTIL_GO}", workers=3, restartScope="WORKER")
    trio.until(lambda: len(runs(tmp_path)) == 4, 60)
    trio.holdfast("job", "pause", job_id)
    paused = trio.reach(job_id, "PAUSED")
    assert ends(paused) == {(1, 0): "STOPPED", (1, 1): "NONZERO_EXIT", (1, 2): "STOPPED", (2, 1): "STOPPED"}
    (tmp_path / "go").touch()
    trio.holdfast("job", "resume", job_id)
    done = trio.reach(job_id, "SUCCEEDED")
    assert (done["attempt"], done["generation"]) == (2, 3)
    check_runs(tmp_path, (1, 0), (1, 1), (1, 2), (2, 1), (3, 0), (3, 1), (3, 2))
