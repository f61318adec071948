"""An array on a cluster of real daemons, whose controller is killed meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.e2e.cli_cluster import DevCluster, until

COUNTED = """echo $HOLDFAST_ARRAY_INDEX of $HOLDFAST_ARRAY_COUNT >> ran
until [ -e go$HOLDFAST_ARRAY_INDEX ]; do sleep 0.02; done"""
"""A rank says that it has begun, and ends when a file of its index is there."""


def began(folder: Path) -> list[int]:
    ran = folder / "ran"
    return [int(line.split()[0]) for line in ran.read_text().splitlines()] if ran.exists() else []


def states(cluster: DevCluster, array: str) -> dict[int, str]:
    listed = json.loads(cluster.holdfast("job", "show", array, "-o", "json").stdout)
    return {each["array"]["index"]: each["state"].removeprefix("JOB_STATE_") for each in listed}


def test_each_index_runs_once_and_two_at_a_time_though_the_controller_is_killed_twice(
    cluster: DevCluster, tmp_path: Path
) -> None:
    name = f"sweep {tmp_path.name}"
    array = cluster.detach("--name", name, "--array", "1-9:2%2", "--", "sh", "-c", COUNTED, cwd=tmp_path)
    report = cluster.detach("--after", name, "--", "true")
    until(lambda: len(began(tmp_path)) == 2, what="for the first two")
    (line,) = [line for line in cluster.holdfast("ps").stdout.splitlines() if line.startswith(array)]
    assert "Array of 5 jobs, 2 at once: 2 running, 3 waiting, 0 done, 0 failed" in line
    assert f"{array}-7" in cluster.holdfast("ps", "--expand").stdout
    assert (
        cluster.job(f"{array}-5")["waitReason"] == f"waits for its turn: 2 of the 5 elements of {array} run at once"
    )
    assert cluster.job(report)["waitsFor"] == [array]
    cluster.kill_controller()
    (tmp_path / "go1").touch()  # it ends while no controller is there to hear of it
    time.sleep(1)
    assert sorted(began(tmp_path)) == [1, 3]
    cluster.restart()
    until(lambda: sorted(began(tmp_path)) == [1, 3, 5], what="for the third")
    (tmp_path / "go3").touch()
    until(lambda: sorted(began(tmp_path)) == [1, 3, 5, 7], what="for the fourth")
    cluster.kill_controller()
    cluster.restart()
    assert states(cluster, array) == {1: "SUCCEEDED", 3: "SUCCEEDED", 5: "RUNNING", 7: "RUNNING", 9: "QUEUED"}
    for index in (5, 7, 9):
        (tmp_path / f"go{index}").touch()
    waited = cluster.holdfast("wait", array)
    assert sorted(line.split()[0] for line in waited.stdout.splitlines()) == [
        f"{array}-{n}" for n in (1, 3, 5, 7, 9)
    ]
    assert sorted(began(tmp_path)) == [1, 3, 5, 7, 9], "each once"
    assert all(line.endswith("of 5") for line in (tmp_path / "ran").read_text().splitlines())
    cluster.reach(report, "SUCCEEDED")


def test_an_array_is_cancelled_whole_and_an_index_runs_again(cluster: DevCluster, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH --array=0-3%1\necho $SLURM_ARRAY_TASK_ID >> ids; sleep 600\n"
    )
    array = cluster.holdfast("submit", "job.sh", cwd=tmp_path).stdout.strip()
    until(lambda: (tmp_path / "ids").exists(), what="for the first")
    said = cluster.holdfast("cancel", array).stderr
    assert f"array {array} is cancelled" in said
    assert cluster.holdfast("wait", array, check=False).returncode != 0
    assert set(states(cluster, array).values()) == {"CANCELLED"}
    assert (tmp_path / "ids").read_text().split() == ["0"]
    refused = cluster.holdfast("logs", array, check=False)
    assert f"{array} is no job but an array of 4." in refused.stderr
    again = cluster.holdfast("job", "rerun", f"{array}-2").stdout.strip()
    assert list(states_of_one(cluster, again)) == [2]
    cluster.holdfast("cancel", again)


def states_of_one(cluster: DevCluster, array: str) -> dict[int, str]:
    """Of an array of one job, which is shown as that job."""
    shown = json.loads(cluster.holdfast("job", "show", array, "-o", "json").stdout)
    return {shown["array"]["index"]: shown["state"]}


def test_run_waits_for_all_and_exits_as_the_first_that_failed(cluster: DevCluster, tmp_path: Path) -> None:
    script = "exit $HOLDFAST_ARRAY_INDEX"
    done = cluster.holdfast(
        "run", "--array", "0,3", "--max-restarts", "0", "--", "sh", "-c", script, check=False, cwd=tmp_path
    )
    assert done.returncode == 3
    assert "-0  SUCCEEDED" in done.stdout and "-3  FAILED" in done.stdout
    wrong = cluster.holdfast("run", "--array", "5-1", "--", "true", check=False)
    assert wrong.returncode != 0 and "the range 5-1 ends before it begins" in wrong.stderr
