"""Hosts that are cut off in one direction alone, for longer than the lease: each job does what its policy says."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone, rank_pids
from tests.faults.apart import Apart, started

pytestmark = [pytest.mark.require("root"), pytest.mark.require("netns")]

# Work ends by itself 7.6 s after the controller was last heard; it is started elsewhere after 13 s.
LEASES = {"heartbeat_interval": 1, "suspect_after": 3, "lease": 7, "lost_after": 13}
HOSTS = {"h0": {"zone": "a"}, "h1": {"zone": "b"}, "h2": {"zone": "a"}, "h3": {"zone": "b"}}
# Writes down that it lives, and on which GPU, until it is killed.
ALIVE = """
import os, sys, time
e = os.environ
name = "@".join(e[k] for k in ("HOLDFAST_JOB", "HOLDFAST_GENERATION", "HOLDFAST_HOST", "CUDA_VISIBLE_DEVICES"))
with open(os.path.join(sys.argv[1], name), "w", buffering=1) as file:
    while True:
        file.write(f"{time.monotonic()}\\n")
        time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    with started(tmp_path_factory.mktemp("apart") / "c", HOSTS, **LEASES) as made:
        yield made


def submit(apart: Apart, alive: Path, zone: str, policy: str) -> str:
    """A job of one GPU in a zone."""
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 1},
        "processSpec": {"command": [sys.executable, "-c", ALIVE, str(alive)], "workingDirectory": "/"},
    }
    spec = {
        "workerPoolSpecs": [pool],
        "scheduling": {"hostSelector": {"labels": {"zone": zone}}},
        "faultTolerance": {"disconnectPolicy": policy},
    }
    text = json.dumps({"jobSpec": spec})
    return str(apart.cluster.holdfast("submit", "-", input=text).stdout.strip())


def place(job: dict[str, object]) -> tuple[str, int]:
    """(host, generation) of a job of one worker."""
    return job["workers"][0]["host"], job["generation"]  # type: ignore[index, return-value]


def ended_late(cluster: DevCluster, job: str) -> bool:
    return bool(exits(cluster.job(job), generation=1)[0]["lateExit"])


def lives(alive: Path) -> dict[tuple[str, str], list[tuple[float, float, str, int]]]:
    """By (host, GPU): who lived there from when until when, as they wrote themselves. All of them are dead."""
    found = defaultdict(list)
    for path in alive.iterdir():
        job, generation, host, gpu = path.name.split("@")
        times = [float(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        found[host, gpu].append((times[0], times[-1], job, int(generation)))
    return found


def test_each_direction_alone_longer_than_the_lease(apart: Apart, tmp_path: Path) -> None:
    cluster, network, alive = apart.cluster, apart.network, tmp_path / "alive"
    alive.mkdir()
    for spare in ("h2", "h3"):
        cluster.holdfast("host", "cordon", spare)
    kept = [submit(apart, alive, zone, "KEEP") for zone in "ab"]
    moved = [submit(apart, alive, zone, "STOP_AND_REPLACE") for zone in "ab"]
    before = {job: cluster.reach(job, "RUNNING") for job in (*kept, *moved)}
    assert [place(before[job]) for job in (*kept, *moved)] == [("h0", 1), ("h1", 1)] * 2
    for spare in ("h2", "h3"):
        cluster.holdfast("host", "uncordon", spare)

    network.cut("h0", "controller")
    network.cut("controller", "h1")
    apart.reached(h0="LOST", h1="LOST", h2="READY", h3="READY")
    cluster.until(lambda: [place(cluster.job(job)) for job in moved] == [("h2", 2), ("h3", 2)], 90)
    for job in moved:
        cluster.reach(job, "RUNNING")
    assert [place(cluster.job(job)) for job in kept] == [("h0", 1), ("h1", 1)]
    assert not any(gone(rank_pids(before[job]).values()) for job in kept)
    assert all(gone(rank_pids(before[job]).values()) for job in moved)
    # One GPU of the zone is free for certain; what a host holds that can't be heard is given to nobody.
    first, second = (submit(apart, alive, "a", "KEEP") for _ in range(2))
    assert place(cluster.reach(first, "RUNNING")) == ("h2", 1)
    assert cluster.job(second)["state"] == "JOB_STATE_QUEUED"

    network.mend("h0", "controller")
    network.mend("controller", "h1")
    apart.reached(h0="READY", h1="READY")
    assert place(cluster.reach(second, "RUNNING")) == ("h0", 1)
    for job in moved:
        cluster.until(partial(ended_late, cluster, job), 60)
        lost = exits(cluster.job(job), generation=1)[0]
        assert (lost["reason"], lost["exitCode"], lost["signal"]) == ("LOST_HOST", None, None)
        assert lost["lateExit"]["message"].startswith("stopped by itself: no word from the controller for 6.46 s")
        assert place(cluster.job(job))[1] == 2
    for job in kept:
        now = cluster.job(job)
        assert (now["state"], rank_pids(now)) == ("JOB_STATE_RUNNING", rank_pids(before[job]))
    cluster.end(*kept, *moved, first, second)
    cluster.until(lambda: not any(cluster.ranks(job) for job in (*kept, *moved, first, second)), 60)

    history = lives(alive)
    for where, tenants in history.items():
        for earlier, later in zip(sorted(tenants), sorted(tenants)[1:], strict=False):
            assert earlier[1] < later[0], f"two at once on {where}: {earlier} and {later}"
    everyone = [tenant for tenants in history.values() for tenant in tenants]
    for job in moved:
        (_, ended, *_), (began, *_) = sorted(tenant for tenant in everyone if tenant[2] == job)
        assert ended < began, "the next generation began before the one that was cut off had ended"
