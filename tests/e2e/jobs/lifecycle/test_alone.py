"""With ``restartScope: WORKER`` only the worker that failed is relaunched; its peers neither end nor move."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster, exits, gone
from tests.e2e.lifecycle_jobs import TELL, answers, ends, hosts_of, pids_of, runs, submit

pytestmark = pytest.mark.usefixtures("idle")
THIRD = "workerpool1-1"
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done; exit 0"
NAMES = "^(MASTER_ADDR|MASTER_PORT|CLUSTER_SPEC|TF_CONFIG)="
ADDRESSES = f"env | grep -E '{NAMES}' | sort > addresses.$RANK.$HOLDFAST_GENERATION;"


def test_only_the_worker_that_failed_is_relaunched_under_the_same_addresses(
    trio: DevCluster, tmp_path: Path
) -> None:
    crash = "[ $RANK = 2 ] && [ $HOLDFAST_GENERATION = 1 ] && { until [ -e crash ]; do sleep 0.05; done; exit 9; }"
    script = f"{ADDRESSES} {TELL} echo $HOLDFAST_WORKER in $HOLDFAST_GENERATION; {crash}; {UNTIL_GO}"
    job_id = submit(trio, tmp_path, script, workers=3, restartScope="WORKER")
    before = trio.reach(job_id, "RUNNING")
    pids = pids_of(before)
    trio.until(lambda: len(runs(tmp_path)) == 3)
    (tmp_path / "crash").touch()
    trio.until(lambda: len(runs(tmp_path)) == 4, 60)
    trio.until(lambda: trio.job(job_id)["recoveries"][0]["endedAt"], 60)
    after = trio.job(job_id)
    assert (after["state"], after["attempt"], after["generation"]) == ("JOB_STATE_RUNNING", 1, 2)
    assert hosts_of(after) == hosts_of(before)
    peers = {name: pid for name, pid in pids.items() if name != THIRD}
    assert {name: pid for name, pid in pids_of(after).items() if name != THIRD} == peers
    assert pids_of(after)[THIRD] != pids[THIRD]
    assert not gone(peers.values())
    assert answers(after) == [("RESTARTED", "NONZERO_EXIT", f"{THIRD} rank 2", "PROC_RESTART")]
    assert (tmp_path / "addresses.2.1").read_text() == (tmp_path / "addresses.2.2").read_text()
    assert json.loads((tmp_path / "addresses.2.2").read_text().partition("CLUSTER_SPEC=")[2].splitlines()[0])
    assert trio.holdfast("logs", job_id, "--rank", "2").stdout == f"{THIRD} in 2\n"
    assert trio.holdfast("logs", job_id, "--rank", "2", "--generation", "1").stdout == f"{THIRD} in 1\n"
    newest = trio.holdfast("logs", job_id)
    assert newest.stderr == ""
    assert sorted(newest.stdout.splitlines()) == [
        "[workerpool0-0 r0] workerpool0-0 in 1",
        "[workerpool1-0 r1] workerpool1-0 in 1",
        f"[{THIRD} r2] {THIRD} in 2",
    ]
    page = trio.holdfast("job", "show", job_id).stdout
    assert THIRD in page and "NONZERO_EXIT" in page
    (tmp_path / "go").touch()
    done = trio.reach(job_id, "SUCCEEDED")
    assert ends(done) == {
        (1, 0): "COMPLETED",
        (1, 1): "COMPLETED",
        (1, 2): "NONZERO_EXIT",
        (2, 2): "COMPLETED",
    }


def test_run_tells_of_the_worker_that_restarts_alone(trio: DevCluster, tmp_path: Path) -> None:
    script = (
        f"{TELL} [ $RANK = 1 ] && [ $HOLDFAST_GENERATION = 1 ] && exit 4; [ $RANK = 1 ] && touch go; {UNTIL_GO}"
    )
    job_id = submit(trio, tmp_path, script, workers=3, restartScope="WORKER")
    trio.reach(job_id, "SUCCEEDED")
    told = [event["message"] for event in trio.events(job_id)]
    assert any("restarting workerpool1-0 alone in place as generation 2" in each for each in told), told
    assert exits(trio.job(job_id), generation=2)[1]["reason"] == "COMPLETED"


def test_hosts_agent_dies_while_its_worker_restarts_alone(trio: DevCluster, tmp_path: Path) -> None:
    crash = "[ $RANK = 2 ] && [ $HOLDFAST_GENERATION = 1 ] && { until [ -e crash ]; do sleep 0.05; done; exit 9; }"
    job_id = submit(trio, tmp_path, f"{TELL} {crash}; {UNTIL_GO}", workers=3, restartScope="WORKER")
    before = trio.reach(job_id, "RUNNING")
    trio.until(lambda: len(runs(tmp_path)) == 3)
    trio.kill(hosts_of(before)[THIRD], "controller")
    (tmp_path / "crash").touch()
    trio.until(lambda: gone([pids_of(before)[THIRD]]))
    trio.restart()
    trio.until(lambda: len(runs(tmp_path)) == 4, 60)
    assert not gone([pids_of(before)["workerpool0-0"], pids_of(before)["workerpool1-0"]])
    (tmp_path / "go").touch()
    done = trio.reach(job_id, "SUCCEEDED")
    assert sorted(ends(done)) == [(1, 0), (1, 1), (1, 2), (2, 2)]
