"""Active checks with real daemons and the real program: hosts are measured, and a job goes before."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, started

ALONE = {"cpu.hash", "memory.copy", "disk.write"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    with started(tmp_path / "c", hosts=2, gpus=1) as made:
        settings = made.dir / "controller.toml"
        settings.write_text(f'{settings.read_text()}\n[host_checks]\npython = "{sys.executable}"\n')
        made.kill_controller()
        made.restart()
        yield made


def measured(cluster: DevCluster, host: str) -> dict[str, Any]:
    """The ``measurements`` of a host."""
    found: dict[str, Any] = cluster.host(host)["measurements"]
    return found


def names(cluster: DevCluster) -> list[str]:
    return [each["name"] for each in json.loads(cluster.holdfast("host", "list", "-o", "json").stdout)]


def test_hosts_are_measured_alone_then_as_a_pair_and_a_killed_controller_loses_no_result(
    cluster: DevCluster,
) -> None:
    first, second = names(cluster)
    said = cluster.holdfast("host", "check", first, "--now")
    assert f"host {first} is being checked" in said.stderr
    cluster.until(lambda: measured(cluster, first)["runningJobId"], 30)
    job = measured(cluster, first)["runningJobId"]
    cluster.reach(job, "RUNNING")
    assert cluster.job(job)["owner"] == "holdfast"
    cluster.kill_controller()
    cluster.restart()
    try:
        cluster.until(lambda: len(measured(cluster, first)["results"]) >= 2, 240)
    except AssertionError as error:
        history = cluster.holdfast("host", "events", first).stdout
        raise AssertionError(f"{measured(cluster, first)}\n{history}") from error
    alone, pair = measured(cluster, first)["results"]
    assert (alone["jobId"], alone["outcome"], alone["reason"]) == (job, "MEASURED", "ASKED")
    assert alone["figures"].keys() == ALONE and min(alone["figures"].values()) > 0
    assert "GPUs: " in alone["problem"], "none of them is real"
    assert (pair["partner"], list(pair["figures"])) == (second, ["net.tcp"])
    assert [each["partner"] for each in measured(cluster, second)["results"]] == [first]
    page = cluster.holdfast("host", "show", first).stdout
    assert "cpu.hash" in page and f"with {second}: net.tcp" in page
    history = cluster.holdfast("host", "events", first).stdout
    assert f"{first} is to be checked, as" in history
    cluster.until(lambda: job not in cluster.holdfast("ps", "--all").stdout, 30)


def test_a_job_gets_the_host_of_a_check_within_seconds(cluster: DevCluster) -> None:
    first, _ = names(cluster)
    cluster.holdfast("host", "check", first, "--now")
    check = measured(cluster, first)["runningJobId"]
    cluster.reach(check, "RUNNING")
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 1},
        "processSpec": {"command": ["sleep", "600"], "workingDirectory": "/"},
    }
    spec = json.dumps({"jobSpec": {"workerPoolSpecs": [pool, pool]}})
    job = cluster.holdfast("submit", "-", input=spec).stdout.strip()
    cluster.reach(job, "RUNNING")
    (result,) = measured(cluster, first)["results"]
    assert (result["outcome"], result["problem"]) == ("STOPPED", f"It gave way to {job}.")
    refused = cluster.holdfast("host", "check", first, "--now", check=False)
    assert refused.returncode and "it has work" in refused.stderr
    cluster.end(job)
