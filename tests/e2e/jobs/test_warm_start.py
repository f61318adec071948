"""A job that asks for warm starts, on a real cluster: its page says so, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, gone
from tests.e2e.lifecycle_jobs import submit

pytestmark = pytest.mark.usefixtures("idle")
PROGRAM = """
import os, sys, time, decimal, xml.dom
print("generation", os.environ["HOLDFAST_GENERATION"], "rank", os.environ["RANK"], os.environ["HOLDFAST_LAST_END"])
for step in range(1, 100000):
    print("step", step, "of 100000")
    time.sleep(0.1)
"""


def test_a_killed_rank_is_back_with_its_imports_done(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, "", command=[sys.executable, "-u", "-c", PROGRAM], warm={"mode": "AUTO"})
    trio.reach(job_id, "RUNNING")
    trio.until(lambda: all("modules wait in" in each["warm"] for each in trio.job(job_id)["workers"]), 90)
    assert "Warm start of workerpool1-0: 1 rank parked" in trio.holdfast("job", "show", job_id).stdout
    parked = of_job(job_id)
    pid = trio.job(job_id)["workers"][1]["ranks"][0]["pid"]
    os.kill(pid, signal.SIGKILL)
    trio.until(lambda: trio.job(job_id)["recoveries"] and trio.job(job_id)["recoveries"][0]["endedAt"], 60)
    after = trio.job(job_id)
    assert (after["generation"], after["recoveries"][0]["warm"]) == (2, True)
    pids = {rank["pid"] for worker in after["workers"] for rank in worker["ranks"]}
    assert len(pids) == 2
    assert pids <= parked
    assert "restarted in place, warm" in trio.holdfast("job", "show", job_id).stdout
    trio.until(lambda: "step 1 of" in trio.holdfast("logs", job_id, "--rank", "1").stdout)
    assert "generation 2 rank 1 SIGNALED" in trio.holdfast("logs", job_id, "--rank", "1").stdout
    trio.until(lambda: all("modules wait in" in each["warm"] for each in trio.job(job_id)["workers"]), 90)
    everything = of_job(job_id)
    trio.holdfast("cancel", job_id)
    trio.reach(job_id, "CANCELLED")
    assert gone(everything)


def of_job(job_id: str) -> set[int]:
    """Pids of all processes with the job's mark in their environment."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"HOLDFAST_JOB={job_id}".encode() in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:
                pass
    return found
