"""``holdfast job inject`` on real gangs: what follows is the real recovery, and what is undone goes on as before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.cli_cluster import DevCluster, rank_pids
from tests.e2e.hangs.test_hangs import sees

Job = dict[str, Any]

# Four ranks that pass a token round, so that all wait for one that stands still. Ends by itself in generation 2.
RING = """
import os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = sys.argv[1]
if os.environ["HOLDFAST_GENERATION"] != "1":
    print("step=100000", flush=True)
    sys.exit(0)

def wait_for_token():
    return source.recv(1)

here = socket.socket(socket.AF_UNIX)
here.bind(f"{folder}/{rank}")
here.listen(1)
while True:
    try:
        there = socket.socket(socket.AF_UNIX)
        there.connect(f"{folder}/{(rank + 1) % size}")
        break
    except OSError:
        time.sleep(0.05)
source, _ = here.accept()
if rank == 0:
    there.send(b"x")
step = 0
while wait_for_token():
    step += 1
    print(f"step={step}", flush=True)
    time.sleep(0.02)
    there.send(b"x")
sys.exit(3)
"""


def ring(cluster: DevCluster, folder: Path, **detection: str) -> str:
    """A job of two workers with two ranks each; its id."""
    folder.mkdir()
    worker = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processesPerWorker": 2,
        "processSpec": {"command": [sys.executable, "-c", RING, str(folder)]},
    }
    wishes = {"floor": "5s", "startupTimeout": "8s", "stepPattern": r"step=(\d+)"} | detection
    job = {"workerPoolSpecs": [worker] * 2, "successPolicy": "ALL", "faultTolerance": {"hangDetection": wishes}}
    text = yaml.safe_dump({"displayName": "ring", "jobSpec": job})
    return str(cluster.holdfast("submit", "-", input=text).stdout.strip())


def kinds(cluster: DevCluster, job_id: str) -> list[str]:
    return [event["type"] for event in cluster.events(job_id)]


def test_a_killed_rank_is_recovered_in_place_and_its_host_is_not_blamed(
    cluster: DevCluster, tmp_path: Path
) -> None:
    job_id = ring(cluster, tmp_path / "ring")
    before = sees(cluster, job_id, lambda job: job["state"] == "JOB_STATE_RUNNING" and job["step"])
    said = cluster.holdfast("job", "inject", job_id, "kill", "--rank", "3").stderr
    assert f"rank 3 of job {job_id} is killed." in said
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED")
    assert (job["state"], job["attempt"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 1, 2)
    (recovery,) = job["recoveries"]
    assert (recovery["endReason"], recovery["endRelatedTask"]) == ("SIGNALED", "workerpool1-0 rank 3")
    assert recovery["injected"] is True
    assert "workerpool1-0 rank 3 (injected)" in cluster.holdfast("job", "recoveries", job_id).stdout
    assert [each["host"] for each in job["workers"]] == [each["host"] for each in before["workers"]]
    events = kinds(cluster, job_id)
    assert events.index("FaultInjected") < events.index("RankExited")
    assert "kill of rank 3" in cluster.holdfast("audit", "-o", "wide").stdout


def test_a_rank_that_stands_still_is_found_by_the_hang_detection_and_left_behind(
    cluster: DevCluster, tmp_path: Path
) -> None:
    job_id = ring(cluster, tmp_path / "ring", action="RESTART")
    sees(cluster, job_id, lambda job: job["state"] == "JOB_STATE_RUNNING" and (job["step"] or 0) > 5)
    cluster.holdfast("job", "inject", job_id, "stop", "--rank", "2", "--for", "10m")
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=120)
    (hang,) = job["hangs"]
    assert (job["state"], job["generation"]) == ("JOB_STATE_SUCCEEDED", 2)
    assert hang["outcome"] == "RESTARTED"
    assert hang["suspects"] == ["workerpool1-0 rank 2"]
    assert job["recoveries"][0]["injected"] is True


def went_on(cluster: DevCluster, job_id: str) -> None:
    reached = cluster.job(job_id)["step"]
    sees(cluster, job_id, lambda job: (job["step"] or 0) > reached + 60)


def test_what_is_undone_goes_on_as_before(cluster: DevCluster, tmp_path: Path) -> None:
    job_id = ring(cluster, tmp_path / "ring")
    before = sees(cluster, job_id, lambda job: job["state"] == "JOB_STATE_RUNNING" and (job["step"] or 0) > 5)
    cluster.holdfast("job", "inject", job_id, "stop", "--rank", "1", "--for", "10s")
    refused = cluster.holdfast("job", "inject", job_id, "slow", "--rank", "1", check=False)
    assert "has a fault already" in refused.stderr
    went_on(cluster, job_id)
    cluster.holdfast("job", "inject", job_id, "slow", "--rank", "1", "--speed", "10", "--for", "1s")
    went_on(cluster, job_id)
    job = cluster.job(job_id)
    assert (job["generation"], rank_pids(job)) == (1, rank_pids(before))
    cluster.holdfast("cancel", job_id)
    cluster.reach(job_id, "CANCELLED")
