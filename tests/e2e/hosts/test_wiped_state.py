"""An agent that has lost its files: what ran there counts as lost, and never runs beside its successor."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import DevCluster

SLEEP = ("python3", "-c", "import time; time.sleep(600)")


def test_a_host_without_its_files_launches_nothing_twice_and_clears_what_it_had(
    make_cluster: Callable[..., DevCluster],
) -> None:
    cluster = make_cluster(hosts=1, gpus=0)
    job = cluster.holdfast("run", "--detach", "--", *SLEEP).stdout.split()[0]
    worker = cluster.reach(job, "RUNNING")["workers"][0]
    first = worker["ranks"][0]["pid"]

    cluster.kill_agent("host-0")
    # The shim goes too, so that the rank itself is all that is left of the place.
    os.kill(worker["shimPid"], signal.SIGKILL)
    shutil.rmtree(Path(cluster.dir) / "hosts/host-0/state/workers")
    assert _alive(first)
    cluster.restart()

    cluster.until(lambda: cluster.job(job)["generation"] == 2 and cluster.job(job)["waitReason"] == "")
    assert not _alive(first)
    (worker,) = cluster.job(job)["workers"]
    (end,) = worker["exits"]
    assert (end["generation"], end["reason"], end["exitCode"], end["signal"]) == (1, "LOST_SHIM_DIED", None, None)
    assert _alive(worker["ranks"][0]["pid"])
    cluster.end(job)


@pytest.mark.require("cgroup", "root")
def test_what_its_ranks_had_started_without_a_mark_is_known_by_its_cgroup(
    make_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    cluster = make_cluster(hosts=1, gpus=0)
    unmarked = tmp_path / "unmarked"
    starts = f"env -i setsid sleep 600 & echo $! > {unmarked}; exec sleep 600"
    job = cluster.holdfast("run", "--detach", "--", "sh", "-c", starts).stdout.split()[0]
    worker = cluster.reach(job, "RUNNING")["workers"][0]
    cluster.until(lambda: unmarked.exists() and unmarked.read_text().endswith("\n"))
    pid = int(unmarked.read_text())

    cluster.kill_agent("host-0")
    os.kill(worker["shimPid"], signal.SIGKILL)
    shutil.rmtree(Path(cluster.dir) / "hosts/host-0/state/workers")
    assert _alive(pid)
    cluster.restart()

    cluster.until(lambda: cluster.job(job)["generation"] == 2 and cluster.job(job)["waitReason"] == "")
    assert not _alive(pid)
    cluster.end(job)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
