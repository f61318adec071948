"""Default settings: a gang that loses a host goes on elsewhere by itself, and nothing that can go on is stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import exits, gone, rank_pids
from tests.faults.apart import Apart, started
from tests.faults.test_partition import ALIVE, lives

pytestmark = [pytest.mark.require("root"), pytest.mark.require("netns")]

LEASE_S, LOST_S = 10, 11
LEASES = {"heartbeat_interval": 1, "suspect_after": 3, "lease": LEASE_S, "lost_after": LOST_S}
HOSTS: dict[str, dict[str, str]] = {"h0": {}, "h1": {}, "h2": {}}


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    with started(tmp_path / "c", HOSTS, **LEASES) as made:
        yield made


def submit(apart: Apart, alive: Path, hosts: str = "h0 h1 h2", **rules: object) -> dict[str, Any]:
    """A gang of two workers, each of which fills a host; running, on h0 and h1."""
    alive.mkdir(exist_ok=True)
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processSpec": {"command": [sys.executable, "-c", ALIVE, str(alive)], "workingDirectory": "/"},
    }
    spec: dict[str, object] = {"workerPoolSpecs": [pool, pool], "faultTolerance": rules}
    spec["scheduling"] = {"hostSelector": {"hosts": hosts.split()}}
    job = str(apart.cluster.holdfast("submit", "-", input=json.dumps({"jobSpec": spec})).stdout.strip())
    running = apart.cluster.reach(job, "RUNNING")
    assert places(running) == ["h0", "h1"]
    time.sleep(3.0)  # until its workers have heard each other
    return running


def places(job: dict[str, Any]) -> list[str]:
    return [worker["host"] for worker in job["workers"]]


def cut_power(apart: Apart, host: str, job: dict[str, Any]) -> None:
    """Agent, shim and ranks are gone in one moment, and the network with them."""
    worker = next(each for each in job["workers"] if each["host"] == host)
    pids = [worker["shimPid"], *(rank["pid"] for rank in worker["ranks"])]
    apart.network.unplug(host)
    for signal_ in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (*pids, apart.daemons[host].pid):
            os.kill(pid, signal_)
    apart.daemons[host].wait(10)
    apart.cluster.until(lambda: gone(pids))


def reason(apart: Apart, job: str) -> str:
    return str(apart.cluster.job(job).get("waitReason", ""))


def never_together(alive: Path) -> None:
    """No two generations of the job lived at once, on any hosts."""
    everyone = sorted(tenant for tenants in lives(alive).values() for tenant in tenants)
    for earlier, later in ((a, b) for a in everyone for b in everyone if a[3] < b[3]):
        assert earlier[1] < later[0], f"two generations at once: {earlier} and {later}"


def test_gang_that_loses_a_host_runs_again_on_another_within_the_lease_and_ten_seconds(
    apart: Apart, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    before = submit(apart, alive)
    job = before["name"].removeprefix("jobs/")
    began = time.monotonic()
    cut_power(apart, "h1", before)
    apart.cluster.until(lambda: "; the job is moved at " in reason(apart, job), 30)
    assert reason(apart, job).startswith("nothing is heard from h1 since ")
    assert reason(apart, job).endswith("; now by: holdfast host fence h1")
    apart.cluster.until(lambda: places(apart.cluster.job(job)) == ["h0", "h2"], LEASE_S + 60)
    after = apart.cluster.reach(job, "RUNNING")
    took_s = time.monotonic() - began
    print(f"running again {took_s:.1f} s after the power cut, {LEASE_S} s of lease included")
    assert took_s < LEASE_S + 10
    assert (after["attempt"], after["generation"]) == (2, 2)
    lost = exits(after, generation=1)[1]
    assert (lost["reason"], lost["exitCode"], lost["signal"]) == ("LOST_HOST", None, None)
    apart.cluster.end(job)
    never_together(alive)


def test_without_another_host_it_waits_with_its_reason_and_goes_on_when_the_host_is_back(
    apart: Apart, tmp_path: Path
) -> None:
    before = submit(apart, tmp_path / "alive", "h0 h1")
    job = before["name"].removeprefix("jobs/")
    cut_power(apart, "h1", before)
    apart.cluster.until(lambda: apart.cluster.job(job)["state"] == "JOB_STATE_QUEUED", LEASE_S + 60)
    apart.cluster.until(lambda: "; h1 is lost since " in reason(apart, job), 30)
    assert reason(apart, job).endswith("or by: holdfast host fence h1")
    apart.network.plug("h1")
    apart.start("h1")
    apart.cluster.until(lambda: apart.cluster.job(job)["generation"] == 2, 60)
    assert places(apart.cluster.reach(job, "RUNNING")) == ["h0", "h1"]
    apart.cluster.end(job)


def test_host_that_is_cut_off_from_everything_stops_its_ranks_before_they_start_elsewhere(
    apart: Apart, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    before = submit(apart, alive)
    job = before["name"].removeprefix("jobs/")
    apart.network.unplug("h1")
    apart.cluster.until(lambda: places(apart.cluster.job(job)) == ["h0", "h2"], LEASE_S + 60)
    apart.cluster.reach(job, "RUNNING")
    apart.network.plug("h1")
    apart.reached(h1="READY")

    def told() -> bool:
        return bool(exits(apart.cluster.job(job), generation=1)[1]["lateExit"])

    apart.cluster.until(told, 60)
    late = exits(apart.cluster.job(job), generation=1)[1]["lateExit"]
    assert late["message"].startswith("stopped by itself: no word from the controller for 9.23 s, nor from another")
    apart.cluster.end(job)
    never_together(alive)


@pytest.mark.parametrize("what", ["cut off from the controller alone", "without its agent"])
def test_host_that_its_peers_reach_runs_on_however_long_we_do_not_hear_it(
    apart: Apart, tmp_path: Path, what: str
) -> None:
    before = submit(apart, tmp_path / "alive")
    job = before["name"].removeprefix("jobs/")
    if what == "without its agent":
        apart.daemons["h1"].kill()
        apart.daemons["h1"].wait(10)
    else:
        apart.network.cut("h1", "controller")
        apart.network.cut("controller", "h1")
    apart.reached(h1="LOST")
    time.sleep(2.5 * LOST_S)
    now = apart.cluster.job(job)
    assert (now["state"], now["generation"], rank_pids(now)) == ("JOB_STATE_RUNNING", 1, rank_pids(before))
    assert not gone(rank_pids(before).values())
    assert "its peers may still reach it" in reason(apart, job)
    if what == "without its agent":
        apart.start("h1")
    else:
        apart.network.mend("h1", "controller")
        apart.network.mend("controller", "h1")
    apart.reached(h1="READY")
    apart.cluster.until(lambda: not reason(apart, job), 30)
    assert rank_pids(apart.cluster.job(job)) == rank_pids(before)
    apart.cluster.end(job)


def test_controller_that_is_away_for_many_leases_costs_nothing(apart: Apart, tmp_path: Path) -> None:
    before = submit(apart, tmp_path / "alive")
    job = before["name"].removeprefix("jobs/")
    apart.daemons["controller"].kill()
    apart.daemons["controller"].wait(10)
    time.sleep(4 * LOST_S)
    assert all(map(_lives, rank_pids(before).values()))
    apart.start("controller")
    log = apart.dir / "controller.log"
    apart.cluster.until(lambda: log.read_text().count("controller.ready") == 2, 60)
    apart.reached(h0="READY", h1="READY", h2="READY")
    now = apart.cluster.reach(job, "RUNNING")
    assert (now["generation"], rank_pids(now)) == (1, rank_pids(before))
    time.sleep(1.5 * LOST_S)
    assert rank_pids(apart.cluster.job(job)) == rank_pids(before)
    apart.cluster.end(job)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
