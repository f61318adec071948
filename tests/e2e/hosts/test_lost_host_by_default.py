"""Default settings: two workers that wait for each other at every step, and one of their hosts is gone at once."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import exits, started

LEASE_S = 60.0
STEPS = """
import os, socket, time
there = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(there).accept()
else:
    while True:
        try:
            peer = socket.create_connection(there)
            break
        except OSError:
            time.sleep(0.1)
while True:
    peer.sendall(b"x")
    if not peer.recv(1):
        raise SystemExit("the other one is gone")
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_gang_runs_on_another_host_within_the_lease_and_ten_seconds(tmp_path: Path) -> None:
    with started(tmp_path / "c", hosts=3, gpus=1) as cluster:
        process = {"command": [sys.executable, "-c", STEPS], "workingDirectory": "/"}
        pool = {"replicaCount": 1, "machineSpec": {"acceleratorCount": 1}, "processSpec": process}
        spec = json.dumps({"jobSpec": {"workerPoolSpecs": [pool, pool]}})
        job = str(cluster.holdfast("submit", "-", input=spec).stdout.strip())
        before = cluster.reach(job, "RUNNING")
        time.sleep(5.0)  # until the workers have heard each other
        worker = before["workers"][1]
        pids = [cluster.agent_pid(worker["host"]), worker["shimPid"], *(rank["pid"] for rank in worker["ranks"])]
        began = time.monotonic()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        # The rank that is left fails at once; its restart in place waits for the host that is gone.
        cluster.until(lambda: "; the job is moved at " in cluster.job(job).get("waitReason", ""), 60)

        def moved() -> bool:
            now = cluster.job(job)
            hosts = [each["host"] for each in now["workers"]]
            return now["state"] == "JOB_STATE_RUNNING" and now["attempt"] == 2 and worker["host"] not in hosts

        cluster.until(moved, 2 * LEASE_S)
        took_s = time.monotonic() - began
        print(f"running on another host {took_s:.1f} s after the loss of one")
        assert took_s < LEASE_S + 10.0
        assert exits(cluster.job(job), generation=1)[1]["reason"] == "LOST_HOST"
        cluster.end(job)
