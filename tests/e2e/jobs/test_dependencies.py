"""Jobs that run after others, in a cluster whose controller is killed meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster, rank_pids

COUNTED = "echo {} >> ran; until [ -e {} ]; do sleep 0.02; done"
"""A rank says that it has begun, and ends when a file of its name is there."""


def step(cluster: DevCluster, folder: Path, name: str, *options: str) -> str:
    script = COUNTED.format(name, name)
    return cluster.detach("--name", f"{name} {folder.name}", *options, "--", "sh", "-c", script, cwd=folder)


def test_a_chain_runs_each_of_its_jobs_once_though_the_controller_is_killed(
    cluster: DevCluster, tmp_path: Path
) -> None:
    prep = step(cluster, tmp_path, "prep")
    left = step(cluster, tmp_path, "left", "--after", prep)
    right = step(cluster, tmp_path, "right", "--after", f"prep {tmp_path.name}:any")
    last = step(cluster, tmp_path, "last", "--after", left, "--after", right)
    pids = rank_pids(cluster.reach(prep, "RUNNING"))
    assert cluster.job(last)["waitsFor"] == [left, right]
    table = cluster.holdfast("ps").stdout
    (line,) = [line for line in table.splitlines() if line.startswith(left)]
    assert "QUEUED" in line and f"Waits for {prep} (RUNNING) to succeed" in line
    assert f"Waits for {prep} (RUNNING) to end" in cluster.holdfast("job", "show", right).stdout
    cluster.kill_controller()
    (tmp_path / "prep").touch()  # it ends while no controller is there to hear of it
    time.sleep(1)
    cluster.restart()
    for job in (left, right):
        cluster.reach(job, "RUNNING")
    assert rank_pids(cluster.job(prep)) == pids
    (tmp_path / "left").touch()
    cluster.reach(left, "SUCCEEDED")
    cluster.kill_controller()
    cluster.restart()
    assert cluster.job(last)["waitReason"] == f"waits for {right} (RUNNING) to succeed"
    (tmp_path / "right").touch()
    (tmp_path / "last").touch()
    cluster.reach(last, "SUCCEEDED")
    assert sorted((tmp_path / "ran").read_text().split()) == ["last", "left", "prep", "right"], "each once"
    told = [event["message"] for event in cluster.events(last) if event["type"] == "DependencyEnded"]
    assert told == [f"{left} ended as SUCCEEDED", f"{right} ended as SUCCEEDED"]


def test_a_job_that_can_never_run_says_so_at_once_and_one_that_pauses_goes_on_by_hand(
    cluster: DevCluster, tmp_path: Path
) -> None:
    bad = cluster.detach("--", "sh", "-c", "until [ -e go ]; do sleep 0.02; done; exit 3", cwd=tmp_path)
    never = cluster.detach("--after", bad, "--", "true")
    asks = cluster.detach("--after", bad, "--pause-if-unmet", "--", "true")
    tidy = cluster.detach("--after", f"{never}:failed", "--", "true")
    (tmp_path / "go").touch()
    cluster.reach(bad, "FAILED")
    error = cluster.reach(never, "FAILED")["error"]
    assert error["message"] == f"{bad} ended as FAILED, and this job waited for it to succeed."
    cluster.reach(tidy, "SUCCEEDED")
    paused = cluster.reach(asks, "PAUSED")
    assert paused["summary"]["health"].startswith(f"Paused: {bad} ended as FAILED")
    refused = cluster.holdfast("run", "--detach", "--after", bad, "--", "true", check=False)
    assert refused.returncode != 0 and f"{bad} ended as FAILED, so a job that waits for it" in refused.stderr
    misspelt = cluster.holdfast("run", "--detach", "--after", f"{bad}:sometimes", "--", "true", check=False)
    assert misspelt.returncode != 0 and "ok, any or failed" in misspelt.stderr
    cluster.holdfast("job", "resume", asks)
    cluster.reach(asks, "SUCCEEDED")
    again = cluster.holdfast("job", "rerun", never)
    cluster.reach(again.stdout.strip(), "SUCCEEDED")


def test_a_dry_run_and_a_job_file_name_jobs_too(cluster: DevCluster, tmp_path: Path) -> None:
    first = cluster.detach("--name", "first", "--", "sleep", "600")
    pool = {"replicaCount": 1, "processSpec": {"command": ["true"]}}
    spec = {"workerPoolSpecs": [pool], "scheduling": {"after": [{"job": first, "end": "ANY"}]}}
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"displayName": "second", "jobSpec": spec}))
    said = cluster.holdfast("submit", "--dry-run", str(file)).stdout
    assert f"would wait: waits for {first} (" in said
    second = cluster.holdfast("submit", str(file)).stdout.strip()
    assert cluster.job(second)["waitsFor"] == [first]
    cluster.holdfast("cancel", first)
    cluster.reach(second, "SUCCEEDED")
