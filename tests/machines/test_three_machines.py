"""Three machines with systemd, from bare to a training that outlives an upgrade, a drain and a power cut."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machines.cluster import UID, USER, Cluster, install, made, ranks, switched_on, tell
from tests.machines.conftest import NEEDS, NEXT, ROOT
from tests.machines.machine import together

pytestmark = NEEDS
# Read anew at each start: slow until the story needs it no longer.
TRAIN = "exec python3 train.py --epochs 60 --checkpoint-every 20 --step-time $(cat /shared/pace)"


@pytest.fixture
def cluster(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Cluster]:
    """With all hosts ready, and the example training in /shared/digits."""
    with switched_on(lower, tmp_path, "m1", "m2", "m3") as found:
        made(found, packages)
        shutil.copytree(ROOT / "examples/digits", found.shared / "digits")
        for path in (found.shared, *found.shared.rglob("*")):
            os.chown(path, UID, UID)
        found.until("(READY.*){3}".replace(".*", r"[\s\S]*"), "host list")
        tell("three hosts are ready")
        yield found


def job_file() -> dict[str, Any]:
    """Two workers that each want a whole host; one that is silent for the length of its lease is to be replaced."""
    pool = {
        "replicaCount": 1,
        "machineSpec": {"cpuCount": os.cpu_count()},
        "processSpec": {"command": ["sh", "-c", TRAIN], "workingDirectory": "/shared/digits"},
    }
    spec = {
        "workerPoolSpecs": [pool, pool],
        "faultTolerance": {"disconnectPolicy": "STOP_AND_REPLACE"},
        "successPolicy": "ALL",  # else the primary's end stops the other, which may be a moment behind
    }
    return {"displayName": "digits", "jobSpec": spec}


def placed(cluster: Cluster, job: str) -> dict[str, str]:
    """Each worker's host."""
    return {worker["name"]: worker["host"] for worker in cluster.job(job)["workers"]}


def running(cluster: Cluster, job: str, generation: int) -> dict[str, str]:
    """Each worker's host, once that generation trains. Rank 0 says a line when it has begun."""
    cluster.until(f'"generation": {generation},', f"job show {job} -o json")
    cluster.until("rank=0 ", f"logs {job} --generation {generation}")
    cluster.until("RUNNING", "job list -o wide")
    return placed(cluster, job)


def test_a_training_outlives_what_happens_to_its_hosts(cluster: Cluster, next_packages: list[Path]) -> None:
    (cluster.shared / "pace").write_text("0.2")
    (cluster.shared / "job.json").write_text(json.dumps(job_file()))
    job = cluster.holdfast("submit /shared/job.json", who=USER).strip()
    first = running(cluster, job, 1)
    tell(f"{job} trains on {first}")
    stays, leaves = first["workerpool0-0"], first["workerpool1-0"]
    (spare,) = {"m1", "m2", "m3"} - {stays, leaves}

    upgraded(cluster, next_packages)

    cluster.holdfast(f"host drain {leaves} --deadline 1s --wait --reason 'new fans'")
    second = running(cluster, job, 2)
    tell(f"{leaves} is drained: {second}")
    assert second == {"workerpool0-0": stays, "workerpool1-0": spare}
    assert ranks(cluster[leaves]) == {}
    cluster.holdfast(f"host uncordon {leaves}")

    lost = next(name for name in ("m3", "m2") if name in second.values())
    survivor = "m1" if "m1" in second.values() else "m2"
    tell(f"the power of {lost} is cut")
    (cluster.shared / "pace").write_text("0")
    cluster.cut_power(lost)
    third = running(cluster, job, 3)
    tell(f"{lost} is lost: {third}")
    assert sorted(third) == ["workerpool0-0", "workerpool1-0"]
    assert set(third.values()) == {survivor, leaves}

    cluster.power_again(lost)
    cluster.until(f"{lost} +READY", "host list")
    tell(f"{lost} has booted, and is back by itself")
    cluster.until(job, "job list --state SUCCEEDED", within_s=300)
    told_truthfully(cluster, job)


def upgraded(cluster: Cluster, packages: list[Path]) -> None:
    """The controller first, then all agents at once, then each again. The ranks notice nothing."""
    before = {name: ranks(cluster[name]) for name in cluster.names}
    assert sorted(len(found) > 0 for found in before.values()) == [False, True, True], before
    install(cluster.controller, packages, "controller")
    together(lambda name: install(cluster[name], packages, "agent"), cluster.names)
    cluster.until(r"[\s\S]*".join(f"{name} +READY.* {NEXT} " for name in cluster.names), "host list -o wide")
    assert {name: ranks(cluster[name]) for name in cluster.names} == before
    together(lambda name: cluster[name].run("systemctl", "restart", "holdfast-agent"), cluster.names)
    for name in cluster.names:
        cluster[name].until("connected", "systemctl", "status", "holdfast-agent", "--no-pager")
    assert {name: ranks(cluster[name]) for name in cluster.names} == before
    tell(f"controller and agents are {NEXT}, agents restarted; every rank is the process it was")


def told_truthfully(cluster: Cluster, job: str) -> None:
    """How each rank of each generation ended, and what was known of the lost one once its host was back."""
    print(cluster.holdfast(f"job show {job} -o wide"))
    shown = cluster.job(job)
    assert shown["state"] == "JOB_STATE_SUCCEEDED"
    exits = sorted(
        (found["generation"], found["rank"], found["reason"], found["exitCode"], found["signal"])
        for worker in shown["workers"]
        for found in worker["exits"]
    )
    assert exits == [
        (1, 0, "STOPPED", None, 15),
        (1, 1, "STOPPED", None, 15),
        (2, 0, "STOPPED", None, 15),
        (2, 1, "LOST_HOST", None, None),
        (3, 0, "COMPLETED", 0, None),
        (3, 1, "COMPLETED", 0, None),
    ]
    late = [found["lateExit"] for worker in shown["workers"] for found in worker["exits"] if found["lateExit"]]
    assert [found["reason"] for found in late] == ["LOST_REBOOT"]
    assert [found["endReason"] for found in shown["recoveries"]] == ["DRAINED", "LOST_HOST"]
    assert "resumed from step" in cluster.holdfast(f"logs {job}")
