"""Real trainings on two hosts: a rank dies, the gang goes on from its checkpoint, and every exit is told."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, Typed, exits, rank_pids

EXAMPLES = Path(__file__).parents[3] / "examples"


def ddp(cluster: DevCluster, tmp_path: Path, *more: str, gpus: int = 2) -> Any:
    """``holdfast run`` of the PyTorch example on two hosts with a rank for each of their GPUs."""
    sizes = ("--epochs", "8", "--log-every", "1", "--checkpoint-every", "25", "--checkpoint-dir", str(tmp_path))
    train = ("--", sys.executable, str(EXAMPLES / "ddp_torch" / "train.py"), *sizes, *more)
    return cluster.typing(
        "run", "--replicas", "2", "--gpus", str(gpus), "--env", "OMP_NUM_THREADS=1", "--all", *train
    )


def newest(cluster: DevCluster) -> str:
    return cluster.ask(lambda client: client.newest_jobs(1))[0].id


def resumed_at(run: Typed) -> list[int]:
    """The step that each generation began with, as rank 0 told it."""
    return [
        int(step) for step in re.findall(r"rank=0 world_size=\d device=cpu from step (\d+)", run.out.read_text())
    ]


def check_story(cluster: DevCluster, before: dict[str, Any], run: Typed) -> dict[str, Any]:
    """One restart in place, on from a checkpoint, every exit of both generations accounted for."""
    job = cluster.reach(before["id"], "SUCCEEDED")
    assert (job["attempt"], job["generation"]) == (1, 2)
    for field in ("host", "gpus"):
        assert [w[field] for w in job["workers"]] == [w[field] for w in before["workers"]]
    ranks = sorted(rank_pids(before))
    assert sorted(exits(job, generation=1)) == sorted(exits(job)) == ranks
    assert [(e["reason"], e["exitCode"]) for _, e in sorted(exits(job).items())] == [("COMPLETED", 0)] * len(ranks)
    assert all(e["reason"] != "COMPLETED" for e in exits(job, generation=1).values())
    first, second = resumed_at(run)
    assert first == 0
    assert second > 0 and second % 25 == 0
    assert float(re.findall(r"done step=\d+ accuracy=(\S+)", run.out.read_text())[0]) > 0.9
    (recovery,) = job["recoveries"]
    assert (recovery["endRecover"], recovery["startType"]) == ("PROC_RESTART", "RESTARTED")
    return job


@pytest.mark.require("torch")
def test_ddp_rank_killed_from_outside_is_relaunched_from_the_checkpoint(
    cluster: DevCluster, tmp_path: Path
) -> None:
    with ddp(cluster, tmp_path, "--step-time", "0.02") as run:
        cluster.until(lambda: re.search(r"step=3\d ", run.out.read_text()), 60)
        before = cluster.job(newest(cluster))
        assert before["state"] == "JOB_STATE_RUNNING"
        assert sorted(rank_pids(before)) == [0, 1, 2, 3]
        os.kill(rank_pids(before)[3], signal.SIGKILL)
        assert run.ends(90) == 0
        job = check_story(cluster, before, run)
    killed = exits(job, generation=1)[3]
    assert (killed["reason"], killed["signal"], killed["exitCode"]) == ("SIGNALED", 9, None)


@pytest.mark.require("torch")
def test_ddp_rank_that_crashes_is_relaunched_from_the_checkpoint(cluster: DevCluster, tmp_path: Path) -> None:
    with ddp(cluster, tmp_path, "--crash-rank", "1", "--crash-step", "60", "--epochs", "4", gpus=1) as run:
        cluster.until(lambda: "generation 1 is running" in run.err.read_text(), 60)
        before = cluster.job(newest(cluster))
        assert run.ends(90) == 0
        job = check_story(cluster, before, run)
    crashed = exits(job, generation=1)[1]
    assert (crashed["reason"], crashed["exitCode"]) == ("NONZERO_EXIT", 1)
    # Peers that saw its sockets close may have been gone before it was; they are not blamed for that.
    assert job["recoveries"][0]["endRelatedTask"] == "workerpool1-0 rank 1"
    assert "rank 1 was told to crash at step 60" in run.err.read_text() + run.out.read_text()
    assert resumed_at(run)[1] == 50


def test_digits_job_file_trains_to_its_end_through_a_crash(cluster: DevCluster, tmp_path: Path) -> None:
    data = yaml.safe_load((EXAMPLES / "digits" / "job.yaml").read_text())
    for pool in data["jobSpec"]["workerPoolSpecs"]:
        process = pool["processSpec"]
        process["workingDirectory"] = str(EXAMPLES / "digits")
        process["command"][0] = sys.executable
        process["args"] = ["--epochs", "60", "--report-every", "20", "--checkpoint-dir", str(tmp_path)]
        process["args"] += ["--crash-rank", "3", "--crash-step", "900"]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    done = cluster.holdfast("submit", str(tmp_path / "job.yaml"), "--wait", "--all", timeout=90)
    job = cluster.job(newest(cluster))
    assert (job["displayName"], job["labels"], job["state"]) == (
        "digits",
        {"example": "digits"},
        "JOB_STATE_SUCCEEDED",
    )
    assert job["generation"] == 2
    assert len({worker["host"] for worker in job["workers"]}) == 2, "workers without GPUs are spread"
    assert [e["reason"] for e in exits(job).values() if e["rank"] < 2] == ["COMPLETED"] * 2
    ended = exits(job, generation=1)
    assert set(ended) == {0, 1, 2, 3}
    assert (ended[3]["reason"], ended[3]["exitCode"]) == ("NONZERO_EXIT", 1)
    assert job["recoveries"][0]["endRelatedTask"] == "workerpool1-0 rank 3"
    assert "was told to crash" in cluster.holdfast("logs", job["id"], "--rank", "3", "--generation", "1").stderr
    assert "accuracy" in done.stdout
