"""The site's fence command, with real daemons: a script that kills all of a host's processes, and one that can't."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, started

from holdfast.dev import processes

SCRIPT = """#!/bin/sh
# Switches the host off: what it runs is listed in pids.
cd {folder}
env | grep ^HOLDFAST_ | sort > env
[ -e pids ] || {{ echo "no answer from the BMC of $HOLDFAST_HOST"; exit 3; }}
kill -KILL $(cat pids) && echo "$1 is off"
"""
TIMES = 'heartbeat_interval = 1\nsuspect_after = 3\n{before}\n[fence]\ncommand = ["{script}", "power"]\nafter = 4\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the script; it says there what it was called with."""
    script = tmp_path / "fence"
    script.write_text(SCRIPT.format(folder=tmp_path))
    script.chmod(0o755)
    return tmp_path


def restarted(cluster: DevCluster, folder: Path) -> None:
    """With short times, and the script as its fence command."""
    settings = cluster.dir / "controller.toml"
    settings.write_text(TIMES.format(before=settings.read_text(), script=folder / "fence"))
    cluster.kill_controller()
    cluster.restart()


def test_work_moves_once_its_host_is_switched_off_and_not_before(folder: Path) -> None:
    with started(folder / "c", hosts=2, gpus=0) as cluster:
        restarted(cluster, folder)
        process = {"command": ["sleep", "600"], "workingDirectory": "/"}
        pools = [{"replicaCount": 1, "processSpec": process}]
        spec = {"workerPoolSpecs": pools, "faultTolerance": {"disconnectPolicy": "KEEP"}}
        job = cluster.holdfast("submit", "-", input=json.dumps({"jobSpec": spec})).stdout.strip()
        worker = cluster.reach(job, "RUNNING")["workers"][0]
        host, agent = worker["host"], cluster.agent_pid(worker["host"])

        os.kill(agent, signal.SIGSTOP)
        cluster.until(lambda: "no answer from the BMC" in cluster.holdfast("host", "show", host).stdout, 60)
        found = dict(line.split("=", 1) for line in (folder / "env").read_text().splitlines())
        assert (found["HOLDFAST_HOST"], found["HOLDFAST_ADDRESS"]) == (host, "127.0.0.1")
        assert float(found["HOLDFAST_DEADLINE"]) > 0 and float(found["HOLDFAST_SILENT_S"]) >= 4
        assert cluster.job(job)["attempt"] == 1, "nothing is proven"
        told = cluster.holdfast("audit", "--trail", "admins").stdout
        assert "fence command" in told and f"host/{host}" in told
        os.kill(agent, signal.SIGCONT)
        cluster.until(lambda: "fence.command is well again" in cluster.holdfast("host", "events", host).stdout, 60)

        pids = [agent, worker["shimPid"], *(rank["pid"] for rank in worker["ranks"])]
        (folder / "pids").write_text(" ".join(map(str, pids)))
        os.kill(agent, signal.SIGSTOP)

        def moved() -> bool:
            now = cluster.job(job)
            return bool(now["state"] == "JOB_STATE_RUNNING" and now["workers"][0]["host"] != host)

        cluster.until(moved, 60)
        assert not processes.snapshot().keys() & set(pids)
        assert exits(cluster.job(job), generation=1)[0]["reason"] == "LOST_HOST"
        history = cluster.holdfast("host", "events", host).stdout
        assert f"{host} fenced by fence command: nothing runs there any more" in history
        assert "power is off" in history
        assert f"{host} lost" not in history, "before its lease was over"
        cluster.end(job)
