"""Hosts that are gone, fenced or drained: the job waits or moves, and no truth is lost or doubled."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone
from tests.e2e.lifecycle_jobs import STAY, TELL, answers, hosts_of, pids_of, runs, submit

from holdfast.dev import processes

pytestmark = pytest.mark.usefixtures("idle")
FIRST, SECOND = "workerpool0-0", "workerpool1-0"


def listed(cluster: DevCluster, host: str) -> dict[str, object]:
    hosts = json.loads(cluster.holdfast("host", "list", "-o", "json").stdout)
    return next(each for each in hosts if each["name"] == host)


def test_lost_host_is_waited_for_until_it_is_fenced_and_its_late_truth_is_kept(
    trio: DevCluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    script = f"{TELL} [ $HOLDFAST_GENERATION = 1 ] && {STAY}; until [ -e go ]; do sleep 0.05; done"
    job_id = submit(trio, tmp_path, script, disconnectPolicy="KEEP")
    before = trio.reach(job_id, "RUNNING")
    hosts = hosts_of(before)
    lost, worker = hosts[SECOND], before["workers"][1]
    trio.kill_agent(lost)
    os.kill(worker["shimPid"], signal.SIGKILL)
    os.kill(pids_of(before)[SECOND], signal.SIGKILL)
    trio.until(lambda: gone([worker["shimPid"], pids_of(before)[SECOND]]))
    # KEEP: nothing is decided behind a silent host's back, and a person can see whom all wait for.
    held = trio.job(job_id)
    assert (held["state"], held["generation"]) == ("JOB_STATE_RUNNING", 1)
    words = f"its ranks may run on there, so the job waits for it, or for: holdfast host fence {lost}"
    trio.until(lambda: trio.job(job_id)["waitReason"].endswith(words), 60)
    assert words in trio.holdfast("ps").stdout
    assert trio.holdfast("host", "fence", lost, check=False).returncode == 2, "it takes a promise"
    told = trio.holdfast("host", "fence", lost, "--yes-it-is-off", "--reason", "its power is cut")
    assert "is fenced" in told.stderr
    trio.until(lambda: trio.job(job_id)["generation"] == 2, 60)
    moved = trio.reach(job_id, "RUNNING")
    assert (moved["attempt"], moved["generation"]) == (2, 2)
    assert hosts_of(moved)[FIRST] == hosts[FIRST]
    assert hosts_of(moved)[SECOND] not in hosts.values()
    assert answers(moved) == [
        ("INIT_OR_RESCHEDULED", "LOST_HOST", f"{SECOND} rank 1", "WORKER_RESCHEDULE"),
    ]
    ended = exits(moved, generation=1)[1]
    assert (ended["reason"], ended["exitCode"], ended["signal"]) == ("LOST_HOST", None, None)
    trio.restart()
    trio.until(lambda: exits(trio.job(job_id), generation=1)[1]["lateExit"], 60)
    late = exits(trio.job(job_id), generation=1)[1]
    assert late["reason"] == "LOST_HOST", "the record does not change"
    assert late["lateExit"]["reason"] == "LOST_SHIM_DIED"
    assert trio.job(job_id)["generation"] == 2
    go.touch()
    done = trio.reach(job_id, "SUCCEEDED")
    assert done["generation"] == 2
    started = [(run.generation, run.rank) for run in runs(tmp_path)]
    assert started == [(1, 0), (1, 1), (2, 0), (2, 1)], "nothing ran twice"
    assert trio.ranks(job_id) == {}


def test_fenced_host_that_ran_on_is_cleaned_when_it_returns(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} {STAY}")
    before = trio.reach(job_id, "RUNNING")
    hosts, pids = hosts_of(before), pids_of(before)
    trio.kill_agent(hosts[SECOND])
    trio.holdfast("host", "fence", hosts[SECOND], "--yes-it-is-off")
    trio.until(lambda: trio.job(job_id)["generation"] == 2, 60)
    trio.reach(job_id, "RUNNING")
    assert not gone([pids[SECOND]]), "the promise was wrong: it runs on"
    trio.restart()
    trio.until(lambda: gone([pids[SECOND]]), 60)
    trio.until(lambda: exits(trio.job(job_id), generation=1)[1]["lateExit"], 60)
    assert exits(trio.job(job_id), generation=1)[1]["lateExit"]["reason"] == "STOPPED"
    assert trio.job(job_id)["generation"] == 2
    trio.until(lambda: not listed(trio, hosts[SECOND])["jobIds"])


def test_exit_on_a_fenced_host_is_told_as_it_was_once_the_host_is_back(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} until [ -e go ]; do sleep 0.05; done; [ $RANK = 1 ] && exit 7; {STAY}")
    before = trio.reach(job_id, "RUNNING")
    trio.until(lambda: len(runs(tmp_path)) == 2)
    lost = hosts_of(before)[SECOND]
    trio.kill_agent(lost)
    (tmp_path / "go").touch()
    trio.until(lambda: gone([pids_of(before)[SECOND]]))
    trio.holdfast("host", "fence", lost, "--yes-it-is-off")
    trio.until(lambda: exits(trio.job(job_id), generation=1).get(1), 60)
    trio.restart()
    trio.until(lambda: exits(trio.job(job_id), generation=1)[1]["lateExit"], 60)
    ended = exits(trio.job(job_id), generation=1)[1]
    assert (ended["reason"], ended["exitCode"]) == ("LOST_HOST", None)
    assert (ended["lateExit"]["reason"], ended["lateExit"]["exitCode"]) == ("NONZERO_EXIT", 7)
    assert "known later" in trio.holdfast("job", "show", job_id).stdout
    assert trio.job(job_id)["recoveries"][0]["endReason"] == "LOST_HOST"


def test_connected_host_is_not_fenced(trio: DevCluster) -> None:
    done = trio.holdfast("host", "fence", "host-1", "--yes-it-is-off", check=False)
    assert done.returncode == 125
    assert "host-1 is connected" in done.stderr


def test_drained_host_loses_its_worker_at_the_deadline_and_the_others_stay(
    trio: DevCluster, tmp_path: Path
) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} {STAY}")
    before = trio.reach(job_id, "RUNNING")
    hosts, pids = hosts_of(before), pids_of(before)
    drained = hosts[SECOND]
    told = trio.holdfast("host", "drain", drained, "--deadline", "10s", "--reason", "new cables")
    assert not gone(pids.values()), "it has ten seconds"
    assert "1 job is still there" in told.stderr and job_id in told.stderr
    assert "draining" in trio.holdfast("host", "list").stdout
    assert "new cables" in trio.holdfast("host", "list").stdout
    assert listed(trio, drained)["draining"]
    trio.until(lambda: trio.job(job_id)["generation"] == 2, 60)
    moved = trio.reach(job_id, "RUNNING")
    assert hosts_of(moved)[FIRST] == hosts[FIRST]
    assert hosts_of(moved)[SECOND] not in hosts.values()
    assert answers(moved) == [("INIT_OR_RESCHEDULED", "DRAINED", f"host {drained}", "WORKER_RESCHEDULE")]
    assert {e["reason"] for e in exits(moved, generation=1).values()} == {"STOPPED"}
    assert gone(pids.values())
    assert not listed(trio, drained)["jobIds"]
    told_of = [event["message"] for event in trio.events_so_far(job_id)]
    assert f"moving away from {drained}, which is drained; workers elsewhere stay there" in told_of
    told = trio.holdfast("job", "recoveries", job_id)
    assert "worker moved" in told.stdout and f"host {drained}" in told.stdout
    waits = submit(trio, tmp_path, STAY, name="waits")
    assert trio.job(waits)["state"] == "JOB_STATE_QUEUED"
    trio.holdfast("cancel", job_id)
    trio.until(lambda: trio.job(waits)["state"] != "JOB_STATE_QUEUED", 60)
    trio.end(waits)
    trio.holdfast("host", "uncordon", drained)
    after = listed(trio, drained)
    assert (after["draining"], after["cordoned"], after["drainDeadline"]) == (False, False, None)
    again = submit(trio, tmp_path, STAY, workers=3, name="again")
    assert drained in hosts_of(trio.reach(again, "RUNNING")).values()


def test_drain_that_ends_before_its_deadline_moves_nothing(trio: DevCluster, tmp_path: Path) -> None:
    job_id = submit(trio, tmp_path, f"{TELL} {STAY}")
    before = trio.reach(job_id, "RUNNING")
    trio.holdfast("host", "drain", hosts_of(before)[SECOND], "--deadline", "8s")
    trio.holdfast("host", "uncordon", hosts_of(before)[SECOND])
    second = submit(trio, tmp_path, "sleep 9", workers=1, gpus=0, name="clock")
    trio.reach(second, "SUCCEEDED")
    after = trio.job(job_id)
    assert (after["generation"], pids_of(after)) == (1, pids_of(before))
    assert all(processes.stat(pid) is not None for pid in pids_of(before).values())
