"""Jobs that run out of time, and jobs that are cancelled in each phase of their life: each ends once, as asked."""

from __future__ import annotations

import datetime
import os
import signal
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone
from tests.e2e.lifecycle_jobs import STAY, TELL, ends, job_file, newest, pids_of, runs, submit

from holdfast.dev import processes

pytestmark = pytest.mark.usefixtures("idle")
DEAF = f"trap '' TERM; {TELL} while :; do sleep 0.2; done"


def cancelled(cluster: DevCluster, job_id: str) -> dict[str, object]:
    """The job, cancelled at the command line, once it has ended; nothing of it is left."""
    cluster.holdfast("cancel", job_id)
    job = cluster.reach(job_id, "CANCELLED", "FAILED", "SUCCEEDED")
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert job["waitReason"] == ""
    assert "cancelled by" in job["error"]["message"]
    assert all(recovery["endedAt"] for recovery in job["recoveries"]), "nothing goes on"
    assert cluster.ranks(job_id) == {}
    return job


def test_job_that_runs_out_of_time_fails_with_124_and_says_so(trio: DevCluster, tmp_path: Path) -> None:
    file = job_file(tmp_path, STAY, scheduling={"timeout": "2s"}, maxJobRetries=3)
    done = trio.holdfast("submit", str(file), "--wait", check=False)
    assert done.returncode == 124, done.stderr
    job = trio.job(newest(trio))
    assert (job["state"], job["generation"], job["recoveries"]) == ("JOB_STATE_FAILED", 1, [])
    assert job["error"]["code"] == 4
    assert job["error"]["message"] == "The job ran longer than its timeout of 2s."
    assert job["error"]["message"] in done.stderr
    assert {e["reason"] for e in exits(job).values()} == {"STOPPED"}


def test_primary_that_completes_ends_the_job_and_frees_its_hosts_at_once(trio: DevCluster, tmp_path: Path) -> None:
    """By its default ``successPolicy``, as a parameter server or an evaluator never ends by itself."""
    script = f"[ $RANK != 0 ] || {{ until grep -q '^1 1 2' runs; do sleep 0.02; done; exit 0; }}; {TELL} {STAY}"
    job_id = submit(trio, tmp_path, script, workers=3, success="PRIMARY")
    waiting = submit(trio, tmp_path, "exit 0", workers=3, name="next")
    job = trio.reach(job_id, "SUCCEEDED")
    assert ends(job) == {(1, 0): "COMPLETED", (1, 1): "STOPPED", (1, 2): "STOPPED"}
    assert "primary completed; the others are stopped" in trio.holdfast("job", "events", job_id).stdout
    trio.reach(waiting, "SUCCEEDED")


def test_time_spent_in_restarts_counts_towards_the_timeout(trio: DevCluster, tmp_path: Path) -> None:
    script = f"[ $HOLDFAST_GENERATION = 1 ] && sleep 3 && exit 1; {STAY}"
    job_id = submit(trio, tmp_path, script, workers=1, scheduling={"timeout": "5s"})
    job = trio.reach(job_id, "FAILED")
    assert (job["error"]["code"], job["generation"]) == (4, 2)
    started, ended = (datetime.datetime.fromisoformat(job[name]) for name in ("startTime", "endTime"))
    assert 5 <= (ended - started).total_seconds() < 7.5, "not five more seconds from the restart on"


def test_cancel_while_it_is_queued(trio: DevCluster, tmp_path: Path) -> None:
    first = submit(trio, tmp_path, STAY, workers=3, name="first")
    trio.reach(first, "RUNNING")
    job_id = submit(trio, tmp_path, STAY)
    assert trio.job(job_id)["state"] == "JOB_STATE_QUEUED"
    assert cancelled(trio, job_id)["generation"] == 0


def test_cancel_while_it_is_prepared(trio: DevCluster, tmp_path: Path) -> None:
    os.kill(trio.agent_pid("host-1"), signal.SIGSTOP)
    try:
        job_id = submit(trio, tmp_path, f"{TELL} {STAY}", workers=3)
        trio.reach(job_id, "PENDING")
        assert "Being prepared on host-1" in trio.holdfast("ps").stdout
        trio.holdfast("cancel", job_id)
        words = "waits for its workers to be gone from host-1"  # the other hosts' are gone soon
        trio.until(lambda: trio.job(job_id)["waitReason"].startswith(words), 60)
        assert trio.job(job_id)["state"] == "JOB_STATE_CANCELLING"
    finally:
        os.kill(trio.agent_pid("host-1"), signal.SIGCONT)
    job = cancelled(trio, job_id)
    assert runs(tmp_path) == []
    assert ends(job) == {}, "nothing was launched"


def test_cancel_while_it_runs(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, STAY)
    trio.reach(job_id, "RUNNING")
    job = cancelled(trio, job_id)
    assert ends(job) == {(1, 0): "STOPPED", (1, 1): "STOPPED"}


def test_cancel_while_it_is_restarted_in_place(trio: DevCluster, tmp_path: Path) -> None:
    # The deaf rank holds the restart up for its grace.
    script = f"[ $RANK = 1 ] && {{ until grep -q '^1 1 0' runs; do sleep 0.02; done; exit 1; }}; {DEAF}"
    job_id = submit(trio, tmp_path, script, scheduling={"gracePeriod": "4s"})
    trio.until(lambda: trio.job(job_id)["generation"] == 2, 60)
    assert "restarting in place on host-" in trio.job(job_id)["waitReason"]
    job = cancelled(trio, job_id)
    assert ends(job) == {(1, 0): "STOPPED", (1, 1): "NONZERO_EXIT"}
    assert len(runs(tmp_path)) == 1


def test_cancel_while_it_is_retried(trio: DevCluster, tmp_path: Path) -> None:
    script = f"[ $RANK = 1 ] && {{ until grep -q '^1 1 0' runs; do sleep 0.02; done; exit 1; }}; {DEAF}"
    # Three commands have to fit into the grace, on a busy machine too.
    job_id = submit(trio, tmp_path, script, maxWorkerRestarts=0, scheduling={"gracePeriod": "12s"})
    trio.until(lambda: trio.job(job_id)["recoveries"], 60)
    retried = trio.job(job_id)
    assert retried["state"] == "JOB_STATE_QUEUED"
    assert retried["waitReason"].startswith("being placed again; waits for its workers to be gone from host-")
    job = cancelled(trio, job_id)
    assert (job["attempt"], ends(job)) == (1, {(1, 0): "STOPPED", (1, 1): "NONZERO_EXIT"})


def test_cancel_while_it_backs_off(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, "exit 1", workers=1, backoff={"initial": "60s"})
    trio.until(lambda: trio.job(job_id)["waitReason"].startswith("backs off after a failure until "), 60)
    assert trio.job(job_id)["generation"] == 2
    job = cancelled(trio, job_id)
    assert ends(job) == {(1, 0): "NONZERO_EXIT"}


@pytest.mark.parametrize("paused", [False, True])
def test_cancel_while_it_is_paused_or_on_its_way_there(trio: DevCluster, tmp_path: Path, paused: bool) -> None:
    job_id = submit(trio, tmp_path, DEAF, workers=1, scheduling={"gracePeriod": "3s"})
    pids = pids_of(trio.reach(job_id, "RUNNING")).values()
    trio.until(lambda: runs(tmp_path))
    told = trio.holdfast("job", "pause", job_id)
    assert "is being paused" in told.stderr
    leaving = trio.job(job_id)
    assert leaving["waitReason"].startswith("being paused; waits for its workers to be gone from host-")
    assert (leaving["workers"][0]["state"], leaving["health"]) == ("STOPPING", "")
    if paused:
        trio.reach(job_id, "PAUSED")
        assert gone(pids)
    job = cancelled(trio, job_id)
    assert ends(job) == {(1, 0): "STOPPED"}
    assert all(processes.stat(pid) is None for pid in pids)
