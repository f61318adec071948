"""A job that was steady before the controller died, and hangs after it: found as fast as ever, for real."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster

pytestmark = pytest.mark.slow

PROGRAM = """
import os, pathlib, sys, time
rank, generation = os.environ["RANK"], os.environ["HOLDFAST_GENERATION"]

def goes_astray():
    time.sleep(3600)

def waits_for_peers():
    source, _ = os.pipe()
    os.read(source, 1)

for step in range(10_000):
    print(f"step={step}", flush=True)
    for _ in range(60):
        time.sleep(0.1)
        if pathlib.Path(sys.argv[1]).exists():
            if generation == "1":
                goes_astray() if rank == "1" else waits_for_peers()
            sys.exit(0)
"""


def test_hang_after_a_restart_of_the_controller_is_found_without_waiting_for_the_start_up(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Start-up may take half an hour, so a watch that had begun anew would not find it in this test."""
    sign = tmp_path / "sign"
    worker: dict[str, Any] = {
        "replicaCount": 1,
        "processesPerWorker": 2,
        "processSpec": {"command": [sys.executable, "-c", PROGRAM, str(sign)]},
    }
    detection = {"action": "RESTART", "floor": "5s", "stepPattern": r"step=(\d+)"}
    job = {"workerPoolSpecs": [worker], "faultTolerance": {"hangDetection": detection}}
    text = yaml.safe_dump({"displayName": "steady", "jobSpec": job})
    job_id = str(cluster.holdfast("submit", "-", input=text).stdout.strip())
    cluster.until(lambda: _notices_after_s(cluster, job_id) < 60, 90)

    cluster.kill_controller()
    cluster.restart()
    cluster.until(lambda: _notices_after_s(cluster, job_id) < 60, 30)
    sign.touch()
    done = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=100)
    print("hangs:", done["hangs"])
    (hang,) = done["hangs"]
    assert (hang["outcome"], hang["suspects"]) == ("RESTARTED", ["workerpool0-0 rank 1"])
    assert (done["state"], done["generation"]) == ("JOB_STATE_SUCCEEDED", 2)


def _notices_after_s(cluster: DevCluster, job_id: str) -> float:
    """The silence that would be noticed, as the job's page words it."""
    found = re.search(r"silence is noticed after (\d+) s", cluster.job(job_id).get("health", ""))
    return float(found.group(1)) if found else float("inf")
