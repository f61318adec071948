"""A live job that hangs is recorded by one command, and the replay of the files tells what was told live."""

from __future__ import annotations

import datetime
import json
import shlex
import signal
import sys
from pathlib import Path

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster

pytestmark = pytest.mark.slow

# The last of four ranks sleeps after some lines, and the others wait for it.
PROGRAM = """
import os, sys, time
for step in range(5):
    print(f"step={step}", flush=True)
    time.sleep(0.5)
if os.environ["RANK"] == "3":
    time.sleep(3600)
os.read(os.pipe()[0], 1)
"""


def submit(cluster: DevCluster) -> str:
    worker = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processesPerWorker": 2,
        "processSpec": {"command": [sys.executable, "-c", PROGRAM]},
    }
    wishes = {"floor": "5s", "startupTimeout": "8s", "stepPattern": r"step=(\d+)", "action": "NOTIFY"}
    job = {"workerPoolSpecs": [worker] * 2, "faultTolerance": {"hangDetection": wishes}}
    return str(cluster.holdfast("submit", "-", input=yaml.safe_dump({"jobSpec": job})).stdout.strip())


def test_replay_of_a_recording_tells_what_was_told_live(cluster: DevCluster, tmp_path: Path) -> None:
    job_id = submit(cluster)
    folder = tmp_path / "kept"
    with cluster.typing("hang", "record", job_id, "--for", "10m", "--out", str(folder)) as recording:
        recording.says("Ctrl-C ends it")
        began = datetime.datetime.now(datetime.UTC)
        cluster.until(lambda: any(hang["outcome"] for hang in cluster.job(job_id)["hangs"]), 90)
        (live,) = cluster.job(job_id)["hangs"]
        assert live["outcome"] == "WOULD_RESTART"
        # In a replay the dumps never come, and 30 s are waited for them.
        confirmed_by = datetime.datetime.fromisoformat(live["noticedAt"]) + datetime.timedelta(seconds=38)
        cluster.until(lambda: datetime.datetime.now(datetime.UTC) > confirmed_by, 60)
        recording.process.send_signal(signal.SIGINT)
        assert recording.ends() == 0
        told = recording.out.read_text().splitlines()
    cluster.end(job_id)
    print(*told, sep="\n")
    assert [line.partition(" ")[0] for line in told[:2]] == ["workerpool0-0", "workerpool1-0"]
    assert sorted(path.name for path in folder.iterdir()) == ["workerpool0-0.jsonl.gz", "workerpool1-0.jsonl.gz"]

    words = shlex.split(told[-1].removeprefix("Replay with: holdfast "))
    moments = json.loads(cluster.holdfast(*words, "-o", "json").stdout)
    print(cluster.holdfast(*words).stdout)
    by_turn = {moment["turn"]: moment for moment in moments}
    assert {"SUSPECT", "NOTICED", "CONFIRMED"} <= by_turn.keys()
    assert by_turn["NOTICED"]["rule"] == live["rule"]
    assert by_turn["CONFIRMED"]["suspects"] == live["suspects"] == ["workerpool1-0 rank 3"]
    noticed_s = (datetime.datetime.fromisoformat(live["noticedAt"]) - began).total_seconds()
    assert abs(by_turn["NOTICED"]["atSeconds"] - noticed_s) < 8
