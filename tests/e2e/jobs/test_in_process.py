"""Real trainings whose ranks go on in their own processes: bit for bit, and as the page on it says."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, exits, rank_pids

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "ddp_torch"

pytestmark = [pytest.mark.require("torch"), pytest.mark.timeout(900)]


def crashed(cluster: DevCluster, tmp_path: Path, program: str, mode: str) -> tuple[dict[int, int], dict[str, Any]]:
    """A gang of four ranks on one host, rank 2 of which fails at step 13, ahead by three of the last checkpoint; the
    pids of the first generation, and the job once it has succeeded.
    """
    options = ["--epochs", "1", "--log-every", "1", "--checkpoint-every", "10", "--step-time", "0.2"]
    options += ["--checkpoint-dir", str(tmp_path / mode), "--crash-rank", "2", "--crash-step", "13"]
    pool = {
        "replicaCount": 1,
        "processesPerWorker": 4,
        "machineSpec": {"cpuCount": 1},
        "processSpec": {
            "command": [sys.executable, str(EXAMPLES / program)],
            "args": options,
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        },
    }
    spec = {"workerPoolSpecs": [pool], "faultTolerance": {"warm": {"mode": mode}}}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"displayName": "in-process", "jobSpec": spec}))
    job = str(cluster.holdfast("submit", str(path)).stdout.split()[-1])
    pids = rank_pids(cluster.reach(job, "RUNNING"))
    done = cluster.reach(job, "SUCCEEDED", timeout=300)
    assert "from step 10" in cluster.holdfast("logs", job, "--rank", "0", "--generation", "2").stdout
    return pids, done


def weights(tmp_path: Path, mode: str) -> dict[str, Any]:
    import torch  # where it is missing, these tests never get here

    state = torch.load(tmp_path / mode / "latest.pt", weights_only=True)
    return {name: tensor.tolist() for name, tensor in state["model"].items()}


def test_the_ranks_that_did_not_fail_go_on_bit_for_bit(cluster: DevCluster, tmp_path: Path) -> None:
    crashed(cluster, tmp_path, "train.py", "OFF")
    pids, done = crashed(cluster, tmp_path, "restartable.py", "IN_PROCESS")
    ended = exits(done, generation=1)
    assert (ended[2]["reason"], ended[2]["exitCode"]) == ("NONZERO_EXIT", 1)
    for rank in (0, 1, 3):
        assert (ended[rank]["reason"], ended[rank]["exitCode"], ended[rank]["signal"]) == ("STOPPED", None, None)
    assert [(end["reason"], end["exitCode"]) for end in exits(done).values()] == [("COMPLETED", 0)] * 4
    (recovery,) = done["recoveries"]
    assert recovery["endRelatedTask"] == "workerpool0-0 rank 2"
    assert recovery["inProcessRanks"] == 3
    assert "3 ranks in process" in cluster.holdfast("job", "show", done["id"]).stdout
    assert len(pids) == 4
    assert weights(tmp_path, "IN_PROCESS") == weights(tmp_path, "OFF")


def test_the_pages_program_goes_on_under_the_pages_job_file(cluster: DevCluster, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "users" / "in-process.md").read_text()
    program, job_file = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)[0] for kind in ("python", "yaml"))
    (tmp_path / "train.py").write_text(program)
    wanted = yaml.safe_load(job_file)
    (pool,) = wanted["jobSpec"]["workerPoolSpecs"]
    # What of it belongs to a site: its GPUs, its Python and its folders.
    assert pool["processesPerWorker"] == pool["machineSpec"].pop("acceleratorCount")
    pool |= {"processesPerWorker": 3, "machineSpec": {"cpuCount": 1}}
    pool["processSpec"] = {
        "command": [sys.executable, *pool["processSpec"]["command"][1:]],
        "workingDirectory": str(tmp_path),
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(wanted))
    job = str(cluster.holdfast("submit", str(tmp_path / "job.yaml")).stdout.split()[-1])
    before = rank_pids(cluster.reach(job, "RUNNING"))
    cluster.until(lambda: (tmp_path / "latest.pt").exists(), 120)
    os.kill(before[1], signal.SIGKILL)
    cluster.until(lambda: cluster.job(job)["generation"] == 2 and all(rank_pids(cluster.job(job)).values()), 120)
    after = rank_pids(cluster.job(job))
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] != before[1]
    cluster.until(lambda: "from step" in cluster.holdfast("logs", job, "--generation", "2").stdout, 120)
    assert "from step 0\n" not in cluster.holdfast("logs", job, "--generation", "2").stdout
    cluster.holdfast("job", "cancel", job)
    cluster.reach(job, "CANCELLED")
