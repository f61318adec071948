"""The wall clock of every daemon leaps by a day, forth and back, under a live job: only what is stamped changes."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, exits, rank_pids, started
from tests.support.fake_clock.library import DAY_S, FakeClock

pytestmark = [pytest.mark.slow, pytest.mark.require("cc")]

WATCHED_S = 25
"""Longer than any of: a heartbeat, the 15 s after which a worker is blind, the job's floor of 5 s."""
# Prints four lines a second, until told to stop; then one rank sleeps and the other waits for it.
PROGRAM = """
import os, sys, time
step = 0
while not os.path.exists(sys.argv[1]):
    step += 1
    print(f"step={step}", flush=True)
    time.sleep(0.25)
if os.environ["HOLDFAST_GENERATION"] == "1":
    time.sleep(3600) if os.environ["RANK"] == "1" else os.read(os.pipe()[0], 1)
"""


@pytest.fixture
def clock(tmp_path: Path) -> FakeClock:
    return FakeClock(tmp_path)


@pytest.fixture
def skewed(tmp_path: Path, clock: FakeClock) -> Iterator[DevCluster]:
    """Two hosts whose daemons live by ``clock``; their users, and this test, don't."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in clock.env.items():
            environment.setenv(name, value)
        with started(tmp_path / "c", hosts=2, gpus=0) as cluster:
            for name in clock.env:
                environment.delenv(name)
                cluster.env.pop(name)
            yield cluster


def submit(cluster: DevCluster, stop: Path) -> str:
    """A rank on each of two hosts, restarted upon a hang, with an hour to live."""
    pool = {"replicaCount": 1, "processSpec": {"command": [sys.executable, "-c", PROGRAM, str(stop)]}}
    wishes = {"floor": "5s", "startupTimeout": "8s", "action": "RESTART"}
    job = {
        "workerPoolSpecs": [pool, pool],
        "scheduling": {"timeout": "1h"},
        "faultTolerance": {"hangDetection": wishes},
    }
    return str(cluster.holdfast("submit", "-", input=yaml.safe_dump({"jobSpec": job})).stdout.strip())


def seen(cluster: DevCluster) -> list[datetime.datetime]:
    """When each host was last heard of, by the controller's clock."""
    hosts = cluster.ask(lambda client: client.list_hosts())
    return [host.last_seen.ToDatetime(datetime.UTC) for host in hosts]


def test_wall_clock_that_leaps_by_a_day_kills_nothing_and_hides_nothing(
    skewed: DevCluster, clock: FakeClock, tmp_path: Path
) -> None:
    cluster, stop = skewed, tmp_path / "stop"
    job_id = submit(cluster, stop)
    pids = rank_pids(cluster.reach(job_id, "RUNNING"))
    time.sleep(WATCHED_S)  # start-up is over

    clock.jump(DAY_S)
    cluster.until(lambda: all(at > tomorrow() for at in seen(cluster)), 30)
    time.sleep(WATCHED_S)
    check_untouched(cluster, job_id, pids)

    # An agent that starts in the new time knows its ranks of yesterday.
    with pytest.MonkeyPatch.context() as environment:
        for name, value in clock.env.items():
            environment.setenv(name, value)
        cluster.kill_agent("host-1")
        cluster.restart()
    time.sleep(WATCHED_S)
    check_untouched(cluster, job_id, pids)

    # Two days back. Nobody can say hello in that time, since our certificates are not valid yet.
    clock.jump(-DAY_S)
    time.sleep(WATCHED_S)
    clock.jump(0)
    cluster.until(lambda: all(at < tomorrow() for at in seen(cluster)), 60)
    time.sleep(WATCHED_S)
    check_untouched(cluster, job_id, pids)

    # And it still sees.
    stop.touch()
    clock.jump(DAY_S)
    job = cluster.reach(job_id, "SUCCEEDED", "FAILED", timeout=120)
    print("hangs:", job["hangs"])
    (hang,) = job["hangs"]
    assert (job["state"], hang["outcome"], job["generation"]) == ("JOB_STATE_SUCCEEDED", "RESTARTED", 2)
    assert {e["reason"] for e in exits(job, generation=1).values()} == {"HANG_KILLED"}
    assert datetime.datetime.fromisoformat(hang["judgedAt"]) > tomorrow()


def tomorrow() -> datetime.datetime:
    """Twelve hours from now by this machine's clock."""
    return datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=12)


def check_untouched(cluster: DevCluster, job_id: str, pids: dict[int, int]) -> None:
    """The same ranks, nothing suspected, both hosts there."""
    job = cluster.job(job_id)
    print("health:", job["health"])
    assert (job["state"], job["generation"], job["attempt"]) == ("JOB_STATE_RUNNING", 1, 1)
    assert (job["hangs"], job["recoveries"], rank_pids(job)) == ([], [], pids)
    hosts = cluster.ask(lambda client: client.list_hosts())
    assert [host.name for host in hosts] == ["host-0", "host-1"]
