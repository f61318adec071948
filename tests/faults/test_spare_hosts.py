"""A spare, of the cluster or the job's own, takes the place of a host that loses its power; the others keep theirs."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import exits
from tests.faults.apart import Apart, started
from tests.faults.test_lost_hosts import LEASE_S, LEASES, cut_power, never_together, places
from tests.faults.test_partition import ALIVE

pytestmark = [pytest.mark.require("root"), pytest.mark.require("netns")]

HOSTS: dict[str, dict[str, str]] = {f"h{number}": {} for number in range(5)}


def submit(apart: Apart, alive: Path, workers: int, **scheduling: object) -> dict[str, Any]:
    """A gang each of whose workers fills a host; running."""
    alive.mkdir(exist_ok=True)
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processSpec": {"command": [sys.executable, "-c", ALIVE, str(alive)], "workingDirectory": "/"},
    }
    rest = {**pool, "replicaCount": workers - 1}
    spec = {"workerPoolSpecs": [pool, rest] if workers > 1 else [pool], "scheduling": scheduling}
    job = str(apart.cluster.holdfast("submit", "-", input=json.dumps({"jobSpec": spec})).stdout.strip())
    return apart.cluster.reach(job, "RUNNING")


def test_one_of_four_hosts_dies_and_the_spare_takes_its_place_while_three_keep_theirs(tmp_path: Path) -> None:
    spares = {"spares.any": {"hosts": 1}}
    with started(tmp_path / "c", HOSTS, **LEASES, **spares) as apart:
        before = submit(apart, tmp_path / "alive", 4)
        lent = submit(apart, tmp_path / "lent", 1, strategy="SPOT")
        names = [each["name"].removeprefix("jobs/") for each in (before, lent)]
        (spare,) = set(HOSTS) - set(places(before))
        assert places(lent) == [spare], "it is lent meanwhile"
        time.sleep(3.0)  # until the gang's workers have heard each other
        gone = places(before)[2]
        cut_power(apart, gone, before)
        wanted = [spare if host == gone else host for host in places(before)]
        apart.cluster.until(lambda: places(apart.cluster.job(names[0])) == wanted, LEASE_S + 60)
        after = apart.cluster.reach(names[0], "RUNNING")
        assert (after["attempt"], after["generation"]) == (2, 2)
        assert exits(after, generation=1)[2]["reason"] == "LOST_HOST"
        assert apart.cluster.job(names[1])["state"] == "JOB_STATE_QUEUED"
        never_together(tmp_path / "alive")
        # Back again it is the next spare: the SPOT job has it, and the gang stays where it is.
        apart.network.plug(gone)
        apart.start(gone)
        assert places(apart.cluster.reach(names[1], "RUNNING")) == [gone]
        assert places(apart.cluster.job(names[0])) == wanted
        apart.cluster.end(*names)


def test_one_of_four_hosts_dies_and_the_jobs_own_spare_takes_its_place_while_another_job_waits(
    tmp_path: Path,
) -> None:
    with started(tmp_path / "c", HOSTS, **LEASES) as apart:
        before = submit(apart, tmp_path / "alive", 4, spares=1)
        name = before["name"].removeprefix("jobs/")
        (spare,) = set(HOSTS) - set(places(before))
        assert before["spareHosts"] == [spare]
        assert f"1; on {spare}, idle until a worker" in apart.cluster.holdfast("job", "show", name).stdout
        waits = apart.cluster.holdfast("submit", "-", input=json.dumps({"jobSpec": single()})).stdout.strip()
        apart.cluster.reach(waits, "QUEUED", timeout=20)
        time.sleep(3.0)  # until the gang's workers have heard each other
        gone = places(before)[2]
        cut_power(apart, gone, before)
        wanted = [spare if host == gone else host for host in places(before)]
        apart.cluster.until(lambda: places(apart.cluster.job(name)) == wanted, LEASE_S + 60)
        after = apart.cluster.reach(name, "RUNNING")
        assert (after["attempt"], after["generation"]) == (2, 2)
        assert exits(after, generation=1)[2]["reason"] == "LOST_HOST"
        assert apart.cluster.job(waits)["state"] == "JOB_STATE_QUEUED"
        never_together(tmp_path / "alive")
        goodput = json.loads(apart.cluster.holdfast("goodput", name, "-o", "json").stdout)
        assert "spare" in {each["category"] for each in goodput["lines"]}
        # Back again the host is for the job that waits; the gang goes on without a spare.
        apart.network.plug(gone)
        apart.start(gone)
        assert places(apart.cluster.reach(waits, "RUNNING")) == [gone]
        assert apart.cluster.job(name)["spareHosts"] == []
        apart.cluster.end(name, waits)


def single() -> dict[str, Any]:
    """A job that fills one host."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    task = {"command": command, "workingDirectory": "/"}
    pool = {"replicaCount": 1, "machineSpec": {"acceleratorCount": 2}, "processSpec": task}
    return {"workerPoolSpecs": [pool]}
