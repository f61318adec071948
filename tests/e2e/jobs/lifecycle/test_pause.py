"""Paused jobs hold nothing and go on from their checkpoint; ranks can tell how often they were started."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, exits
from tests.e2e.lifecycle_jobs import STAY, TELL, hosts_of, job_file, python, runs, submit

pytestmark = pytest.mark.usefixtures("idle")
DIGITS = Path(__file__).parents[4] / "examples" / "digits"
NAMES = (
    "HOLDFAST_ATTEMPT",
    "HOLDFAST_GENERATION",
    "HOLDFAST_RESTART_COUNT",
    "HOLDFAST_LAST_END",
    "MA_PROC_START_CNT",
    "MA_SCHEDULE_CNT",
)


def listed(cluster: DevCluster, what: str) -> dict[str, Any]:
    found = json.loads(cluster.holdfast(*what.split(), "-o", "json").stdout)
    return {each.get("id") or each["name"]: each for each in found}


COUNT = """
import os, pathlib, signal, sys, time
saved = pathlib.Path("saved-" + os.environ["RANK"])
step = int(saved.read_text()) if saved.exists() else 0
def save(*_):
    saved.write_text(str(step))
    print("saved at step", step, flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("begins at step", step, flush=True)
while True:
    time.sleep(0.01)
    step += 1
    if step % 10 == 1:
        print("step", step, flush=True)
"""
"""A training that saves when it is warned, and goes on from there."""


def test_spot_training_starts_out_of_turn_is_warned_and_resumes_where_it_saved(
    trio: DevCluster, tmp_path: Path
) -> None:
    busy = submit(trio, tmp_path, STAY, workers=1, name="busy")
    trio.reach(busy, "RUNNING")
    large = submit(trio, tmp_path, "exit 0", workers=3, name="large")
    wishes = {"strategy": "SPOT", "warningSignal": {"signal": "SIGUSR1", "before": "60s"}}
    spot = submit(trio, tmp_path, f"{TELL} {python(COUNT)}", workers=2, name="spot", scheduling=wishes)
    trio.until(lambda: len(runs(tmp_path)) == 2, 60)
    assert trio.job(large)["state"] == "JOB_STATE_QUEUED"
    assert f"on loan: {large} waits ahead of it" in trio.holdfast("job", "events", spot).stdout
    for rank in ("0", "1"):
        trio.until(lambda rank=rank: "\nstep" in trio.holdfast("logs", spot, "--rank", rank).stdout, 30)  # type: ignore[misc]
    trio.end(busy)
    trio.reach(large, "SUCCEEDED", timeout=50)  # all have saved and exited: nothing waits for the minute
    assert f"ahead of giving way to {large}" in trio.holdfast("job", "events", spot).stdout
    trio.until(lambda: len(runs(tmp_path)) == 4, 60)
    job = trio.job(spot)
    assert [recovery["endReason"] for recovery in job["recoveries"]] == ["PREEMPTED"]

    def begins(rank: str, step: str) -> bool:
        said: str = trio.holdfast("logs", spot, "--rank", rank).stdout
        return said.startswith(f"begins at step {step}\n")

    for rank in ("0", "1"):
        step = (tmp_path / f"saved-{rank}").read_text()
        trio.until(lambda rank=rank, step=step: begins(rank, step), 30)  # type: ignore[misc]
        assert int(step) > 0
    trio.end(spot)


def test_paused_training_lends_its_hosts_and_goes_on_from_its_checkpoint(trio: DevCluster, tmp_path: Path) -> None:
    train = [sys.executable, str(DIGITS / "train.py"), "--epochs", "30", "--report-every", "1"]
    train += ["--step-time", "0.005", "--checkpoint-dir", str(tmp_path / "saved")]
    file = job_file(tmp_path, "", command=train, workers=3)
    job_id = trio.holdfast("submit", str(file)).stdout.strip()
    trio.until(lambda: re.search(r"step=[2-9]\d\d", trio.holdfast("logs", job_id, "--rank", "0").stdout), 60)
    with trio.typing("logs", "-f", job_id, "--rank", "0") as logs:
        trio.holdfast("job", "pause", job_id)
        paused = trio.reach(job_id, "PAUSED")
        assert paused["waitReason"] == f"paused; go on with: holdfast job resume {job_id}"
        assert listed(trio, "ps")[job_id]["state"] == "JOB_STATE_PAUSED"
        assert [host["workers"] for host in listed(trio, "host list").values()] == [0, 0, 0]
        assert [gpu["jobId"] for host in listed(trio, "host list").values() for gpu in host["gpus"]] == [""] * 3
        assert {e["reason"] for e in exits(paused).values()} == {"STOPPED"}
        # The second needs every GPU there is.
        meanwhile = submit(trio, tmp_path, "exit 0", workers=3, name="meanwhile")
        trio.reach(meanwhile, "SUCCEEDED")
        assert trio.job(job_id)["state"] == "JOB_STATE_PAUSED"
        assert job_id in trio.holdfast("job", "resume", job_id).stderr
        job = trio.reach(job_id, "SUCCEEDED", timeout=120)
        assert logs.ends() == 0
        followed = logs.out.read_text()
    assert (job["attempt"], job["generation"], job["recoveries"]) == (2, 2, [])
    assert sorted(exits(job)) == sorted(exits(job, generation=1)) == [0, 1, 2]
    first, second = (
        trio.holdfast("logs", job_id, "--rank", "0", "--generation", str(number)).stdout for number in (1, 2)
    )
    assert "step=" in first and "done" not in first
    (resumed,) = re.findall(r"resum\w* .*?(\d+)", second)
    assert int(resumed) >= 200
    assert int(re.findall(r"step=(\d+)", second)[0]) > int(resumed)
    assert "done step=" in second
    assert second in followed, "a follower sees what comes after the pause"


def test_logs_of_an_earlier_attempt_are_read_where_the_worker_was_then(trio: DevCluster, tmp_path: Path) -> None:
    script = f"{TELL} echo attempt $HOLDFAST_ATTEMPT of $RANK on $HOLDFAST_HOST; [ $RANK = 1 ] && exit 3; {STAY}"
    script = f"[ $HOLDFAST_ATTEMPT = 2 ] && {{ echo attempt 2 of $RANK on $HOLDFAST_HOST; exit 0; }}; {script}"
    job_id = submit(trio, tmp_path, script, maxWorkerRestarts=0, maxJobRetries=1)
    job = trio.reach(job_id, "SUCCEEDED")
    (failed_on,) = {run.host for run in runs(tmp_path) if run.rank == 1}
    now_on = hosts_of(job)["workerpool1-0"]
    assert failed_on != now_on
    read = [trio.holdfast("logs", job_id, "--rank", "1", *more) for more in (("--generation", "1"), ())]
    assert [each.stdout for each in read] == [
        f"attempt 1 of 1 on {failed_on}\n",
        f"attempt 2 of 1 on {now_on}\n",
    ]
    both = trio.holdfast("logs", job_id, "--generation", "1").stdout
    assert f"attempt 1 of 1 on {failed_on}" in both
    # What is left there can't be read while that host is away, and that is said.
    trio.kill_agent(failed_on)
    away = trio.holdfast("logs", job_id, "--rank", "1", "--generation", "1", check=False)
    assert failed_on in away.stderr, away


def test_starts_are_counted_over_restart_retry_and_pause(trio: DevCluster, tmp_path: Path) -> None:
    words = ",".join(f"${name}" for name in NAMES)
    script = (
        f"echo $HOLDFAST_GENERATION:{words} >> told;"
        f" [ $HOLDFAST_GENERATION -lt 4 ] && exit 1; [ $HOLDFAST_GENERATION = 5 ] && exit 0; {STAY}"
    )
    job_id = submit(trio, tmp_path, script, workers=1, maxWorkerRestarts=2, maxJobRetries=1)
    trio.until(lambda: "4:" in (tmp_path / "told").read_text() if (tmp_path / "told").exists() else False, 60)
    trio.reach(job_id, "RUNNING")
    trio.holdfast("job", "pause", job_id)
    trio.reach(job_id, "PAUSED")
    trio.holdfast("job", "resume", job_id)
    trio.reach(job_id, "SUCCEEDED")
    told = dict(line.split(":") for line in (tmp_path / "told").read_text().splitlines())
    assert {generation: tuple(words.split(",")) for generation, words in told.items()} == {
        "1": ("1", "1", "0", "", "1", "1"),
        "2": ("1", "2", "1", "NONZERO_EXIT", "2", "1"),
        "3": ("1", "3", "2", "NONZERO_EXIT", "3", "1"),
        "4": ("2", "4", "2", "NONZERO_EXIT", "1", "2"),
        "5": ("3", "5", "2", "PAUSED", "1", "3"),
    }
