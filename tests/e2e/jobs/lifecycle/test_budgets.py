"""Failures are answered in place, then elsewhere, then no more; every end and every answer is on record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits
from tests.e2e.lifecycle_jobs import STAY, TELL, answers, ends, hosts_of, job_file, newest, runs, submit

pytestmark = pytest.mark.usefixtures("idle")
SECOND = "workerpool1-0"
PEER_UP = 'until grep -q "^. $HOLDFAST_GENERATION 0" runs; do sleep 0.02; done;'
WATCHDOG = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
    " Timeout(ms)=600000) ran for 600123 milliseconds before timing out."
)


def test_failures_past_the_budget_retry_the_whole_job_elsewhere_and_then_it_fails(
    trio: DevCluster, tmp_path: Path
) -> None:
    script = f"{TELL} [ $RANK = 1 ] && exit 1; {STAY}"
    file = job_file(tmp_path, script, maxWorkerRestarts=5, maxJobRetries=1)
    done = trio.holdfast("submit", str(file), "--wait", check=False, timeout=120)
    assert done.returncode == 1, done.stderr
    job = trio.job(newest(trio))
    assert (job["state"], job["attempt"], job["generation"]) == ("JOB_STATE_FAILED", 2, 7)
    assert ends(job) == {
        (generation, rank): reason
        for generation in range(1, 8)
        for rank, reason in ((0, "STOPPED"), (1, "NONZERO_EXIT"))
    }
    assert {e["attempt"] for e in exits(job, generation=6).values()} == {1}
    assert {e["attempt"] for e in exits(job, generation=7).values()} == {2}
    assert {e["exitCode"] for g in range(1, 8) for e in [exits(job, generation=g)[1]]} == {1}
    related = f"{SECOND} rank 1"
    assert answers(job) == [("RESTARTED", "NONZERO_EXIT", related, "PROC_RESTART")] * 5 + [
        ("INIT_OR_RESCHEDULED", "NONZERO_EXIT", related, "JOB_RESCHEDULE")
    ]
    assert [(r["attempt"], r["generation"]) for r in job["recoveries"]] == [(1, g) for g in range(2, 7)] + [(2, 7)]
    for recovery in job["recoveries"]:
        assert recovery["startedAt"] < recovery["endedAt"]
        assert 0 < recovery["lostSeconds"] < 60
        assert recovery["phases"]["start"] > 0
    ran = runs(tmp_path)
    # A rank that is stopped at once may not get as far as to tell.
    assert [run[:3] for run in ran if run.rank == 1] == [(2 if g == 7 else 1, g, 1) for g in range(1, 8)]
    assert len({run[1:3] for run in ran}) == len(ran), "nothing was started twice"
    (failed_on,) = {run.host for run in ran if run.rank == 1 and run.attempt == 1}
    assert failed_on not in hosts_of(job).values(), "another host was free"
    assert job["error"]["exitCode"] == 1
    assert job["error"]["message"] == (
        "The replica workerpool1-0 exited with a non-zero status of 1. Termination reason: Error."
    )
    assert "restart 5 of 5" in done.stderr
    assert "job retry 1 of 1" in done.stderr
    assert done.stderr.count("failed after") == 1
    told = trio.holdfast("job", "recoveries", job["id"])
    assert told.stdout.count("restarted in place") == 5
    assert told.stdout.count("placed again") == 1
    assert told.stderr.startswith("6 recoveries, ")
    assert json.loads(trio.holdfast("job", "recoveries", job["id"], "-o", "json").stdout) == job["recoveries"]


def test_second_crash_on_a_host_moves_that_worker_and_keeps_the_others(trio: DevCluster, tmp_path: Path) -> None:
    script = f"{TELL} [ $HOLDFAST_GENERATION = 3 ] && exit 0; {PEER_UP} [ $RANK = 1 ] && kill -SEGV $$; {STAY}"
    job_id = submit(trio, tmp_path, script)
    job = trio.reach(job_id, "SUCCEEDED")
    assert (job["attempt"], job["generation"]) == (2, 3)
    hosts = {(run.generation, run.rank): run.host for run in runs(tmp_path)}
    assert hosts[1, 0] == hosts[2, 0] == hosts[3, 0]
    assert hosts[1, 1] == hosts[2, 1] != hosts[3, 1]
    assert hosts[3, 1] != hosts[3, 0]
    related = f"{SECOND} rank 1"
    assert answers(job) == [
        ("RESTARTED", "SIGNALED", related, "PROC_RESTART"),
        ("INIT_OR_RESCHEDULED", "SIGNALED", related, "WORKER_RESCHEDULE"),
    ]
    for generation in (1, 2):
        crashed = exits(job, generation=generation)[1]
        assert (crashed["signal"], crashed["exitCode"], crashed["coreDumped"]) == (11, None, False)
        assert "SIGSEGV" in crashed["message"] or "11" in crashed["message"]


def test_crashes_are_tried_three_times_and_then_the_job_fails(trio: DevCluster, tmp_path: Path) -> None:
    file = job_file(tmp_path, f"[ $RANK = 1 ] && kill -SEGV $$; {STAY}")
    done = trio.holdfast("submit", str(file), "--wait", check=False, timeout=120)
    assert done.returncode == 139, done.stderr
    job = trio.job(newest(trio))
    assert (job["state"], job["generation"]) == ("JOB_STATE_FAILED", 4)
    assert [answer[3] for answer in answers(job)] == ["PROC_RESTART", "WORKER_RESCHEDULE", "PROC_RESTART"]
    assert job["error"]["message"] == (
        "The replica workerpool1-0 exited with a non-zero status of 139. Termination reason: signal 11."
    )


def test_core_flag_of_a_crash_is_the_kernel_s(trio: DevCluster, tmp_path: Path) -> None:
    script = "ulimit -c unlimited; kill -SEGV $$"
    (tmp_path / "reference").mkdir()
    by_hand = os.posix_spawn("/bin/sh", ["sh", "-c", f"cd {tmp_path}/reference; {script}"], os.environ)
    dumped = os.WCOREDUMP(os.waitpid(by_hand, 0)[1])
    job_id = submit(trio, tmp_path, script, workers=1, maxWorkerRestarts=0)
    job = trio.reach(job_id, "FAILED")
    assert (exits(job)[0]["signal"], exits(job)[0]["coreDumped"]) == (11, dumped)
    assert job["error"]["message"].endswith("signal 11, core dumped." if dumped else "signal 11.")


def test_abort_of_nccls_watchdog_counts_as_a_hang(trio: DevCluster, tmp_path: Path) -> None:
    script = f"[ $RANK = 1 ] && {{ echo '{WATCHDOG}' >&2; kill -ABRT $$; }}; {STAY}"
    file = job_file(tmp_path, script, maxHangRestarts=2, maxWorkerRestarts=5)
    done = trio.holdfast("submit", str(file), "--wait", check=False, timeout=120)
    assert done.returncode == 134, done.stderr
    job = trio.job(newest(trio))
    assert (job["state"], job["generation"]) == ("JOB_STATE_FAILED", 3), "two hang restarts, not five of a worker"
    assert [(r["endReason"], r["endRelatedTask"]) for r in job["recoveries"]] == [("HANG", f"{SECOND} rank 1")] * 2
    assert [r["endRecover"] for r in job["recoveries"]] == ["PROC_RESTART", "WORKER_RESCHEDULE"]
    assert any("Watchdog caught" in line for line in job["error"]["details"])


def test_recovery_is_over_once_all_run_again_and_the_page_says_so(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"[ $HOLDFAST_GENERATION = 1 ] && exit 3; {STAY}", workers=1)
    trio.until(lambda: any(recovery["endedAt"] for recovery in trio.job(job_id)["recoveries"]), 60)
    assert trio.job(job_id)["state"] == "JOB_STATE_RUNNING"
    page = trio.holdfast("job", "show", job_id).stdout
    assert "NONZERO_EXIT" in page.partition("Recoveries")[2]
    assert "going on" not in page
