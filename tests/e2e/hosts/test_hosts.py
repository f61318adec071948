"""Hosts with labels, unfit hosts, hosts that are drained and hosts that are cut off, with real daemons."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cli_cluster import DevCluster, started

from holdfast.dev import processes

SLEEP = ("--", "sleep", "600")
LABELS = {"host-0": {"rack": "a"}, "host-1": {"rack": "b"}, "host-2": {"rack": "b", "disk": "ssd"}}
SHORT_LEASES = """
heartbeat_interval = 0.5
suspect_after = 1.5
lease = 4
lost_after = 9
"""
SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """Three hosts with labels, one GPU each."""
    with started(tmp_path_factory.mktemp("labels") / "c", hosts=3, gpus=1, labels=LABELS) as made:
        yield made


def hosts_of(cluster: DevCluster, job: str) -> set[str]:
    return {worker["host"] for worker in cluster.reach(job, "RUNNING")["workers"]}


def host(cluster: DevCluster, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(cluster.holdfast("host", "show", name, "-o", "json").stdout)
    return found


def submit(cluster: DevCluster, tmp_path: Path, command: list[str], **spec: object) -> str:
    pool = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 1},
        "processSpec": {"command": command, "workingDirectory": str(tmp_path)},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"displayName": "j", "jobSpec": {"workerPoolSpecs": [pool], **spec}}))
    out: str = cluster.holdfast("submit", str(path)).stdout
    return out.strip()


def test_labels_are_shown_and_jobs_land_where_they_ask_to(cluster: DevCluster) -> None:
    assert host(cluster, "host-2")["labels"] == LABELS["host-2"]
    assert "rack=b" in cluster.holdfast("host", "list", "-o", "wide").stdout
    assert "rack=a" in cluster.holdfast("host", "show", "host-0").stdout
    first = cluster.detach("--gpus", "1", "--label-selector", "rack=a", *SLEEP)
    second = cluster.detach(
        "--gpus", "1", "--host-selector", "rack in (b,c),!old", "--avoid-host", "host-1", *SLEEP
    )
    assert (hosts_of(cluster, first), hosts_of(cluster, second)) == ({"host-0"}, {"host-2"})
    cluster.end(first, second)


def test_each_pool_lands_on_hosts_of_its_own(cluster: DevCluster, tmp_path: Path) -> None:
    task = {"replicaCount": 1, "processSpec": {"command": list(SLEEP[1:]), "workingDirectory": str(tmp_path)}}
    pools = [{**task, "hostSelector": {"match": match}} for match in ("rack=b,rack!=a", "rack notin (b)")]
    path = tmp_path / "pools.json"
    path.write_text(json.dumps({"displayName": "pools", "jobSpec": {"workerPoolSpecs": pools}}))
    job = cluster.holdfast("submit", str(path)).stdout.strip()
    cluster.until(lambda: cluster.job(job)["state"] == "JOB_STATE_RUNNING")
    primary, worker = (each["host"] for each in cluster.job(job)["workers"])
    assert host(cluster, primary)["labels"] in (LABELS["host-1"], LABELS["host-2"])
    assert host(cluster, worker)["labels"] == LABELS["host-0"]
    assert "of workerpool1: where rack notin (b)" in cluster.holdfast("job", "show", job).stdout
    cluster.end(job)


def test_a_job_that_no_host_matches_waits_and_says_why(cluster: DevCluster) -> None:
    waits = cluster.detach("--gpus", "1", "--label-selector", "rack=z", *SLEEP)
    why = "no host that it may have takes work at present (rack=z)"
    cluster.until(lambda: cluster.job(waits)["waitReason"] == why)
    assert why.capitalize() in cluster.holdfast("job", "show", waits).stdout
    cluster.end(waits)


def test_an_unfit_host_is_cordoned_with_the_reason_and_the_job_goes_elsewhere(cluster: DevCluster) -> None:
    settings = cluster.dir / "hosts/host-0/agent.toml"
    before = settings.read_text()
    settings.write_text(before + "[checks]\nnofile = 999999999\n")
    cluster.kill_agent("host-0")
    cluster.restart()
    job = cluster.detach("--gpus", "1", "--avoid-host", "host-1", *SLEEP)
    cluster.until(lambda: host(cluster, "host-0")["cordoned"] and hosts_of(cluster, job) == {"host-2"})
    reason = str(host(cluster, "host-0")["cordonReason"])
    assert "of the 999999999 that it must be" in reason
    assert "[checks] nofile" in cluster.holdfast("host", "list").stdout
    (recovery,) = cluster.job(job)["recoveries"]
    assert recovery["endReason"] == "HOST_UNFIT"
    cluster.end(job)
    settings.write_text(before)
    cluster.kill_agent("host-0")
    cluster.restart()
    cluster.holdfast("host", "uncordon", "host-0")


def test_a_host_with_a_full_disk_gets_no_work_says_so_and_gets_it_again(cluster: DevCluster) -> None:
    settings = cluster.dir / "hosts/host-0/agent.toml"
    before = settings.read_text()
    settings.write_text(before + "[checks]\ndisk_free_mb = 999999999999\n")
    cluster.kill_agent("host-0")
    cluster.restart()
    cluster.until(lambda: host(cluster, "host-0")["failedChecks"])
    saw = "free of the 999999999999 MiB that it must have; it gets no new work until that is over"
    assert saw in " ".join(cluster.holdfast("status").stdout.split())
    assert "disk.state_dir" in cluster.holdfast("host", "list").stdout
    waits = cluster.detach("--gpus", "1", "--label-selector", "rack=a", *SLEEP)
    cluster.until(lambda: "host-0 disk.log_dir: " in cluster.job(waits)["waitReason"])
    settings.write_text(before)
    cluster.kill_agent("host-0")
    cluster.restart()
    assert hosts_of(cluster, waits) == {"host-0"}
    cluster.end(waits)
    kinds = [
        each["event"]["kind"]
        for each in json.loads(cluster.holdfast("host", "events", "host-0", "-o", "json").stdout)
    ]
    assert kinds.count("check_failed") == kinds.count("check_passed") == 2
    assert "disk.state_dir is well again" in cluster.holdfast("host", "show", "host-0").stdout


def test_a_stopped_agent_is_named_as_such(cluster: DevCluster) -> None:
    pid = int((cluster.dir / "hosts/host-0/agent.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    cluster.until(lambda: host(cluster, "host-0")["agentStoppedAt"])
    assert "its agent was stopped at " in cluster.holdfast("host", "list").stdout
    cluster.restart()
    cluster.until(lambda: not host(cluster, "host-0")["agentStoppedAt"])
    shown = " ".join(cluster.holdfast("host", "show", "host-0").stdout.split())
    assert "the agent of host-0 was stopped" in shown and "host-0 has an agent again after" in shown


def pages(cluster: DevCluster) -> dict[str, str]:
    """What Prometheus would get of each daemon, by its settings' folder; the controller's is ``c``."""
    found = {}
    for path in (cluster.dir / "controller.toml", *cluster.dir.glob("hosts/*/agent.toml")):
        address = tomllib.loads(path.read_text())["metrics_listen"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=180) as answer:
            found[path.parent.name] = answer.read().decode()
    return found


def tells(cluster: DevCluster, daemon: str, *lines: str) -> bool:
    return all_listen(cluster) and set(lines) <= set(pages(cluster)[daemon].splitlines())


def all_listen(cluster: DevCluster) -> bool:
    """Whether every daemon serves its page: one that was just restarted is ready before that."""
    try:
        return bool(pages(cluster))
    except urllib.error.URLError:
        return False


def test_every_daemon_tells_its_metrics_and_the_status_names_what_needs_attention(cluster: DevCluster) -> None:
    job = cluster.detach("--gpus", "1", "--on-host", "host-2", *SLEEP)
    assert hosts_of(cluster, job) == {"host-2"}
    cluster.holdfast("host", "cordon", "host-1", "--reason", "a fan is loud")
    jobs, hosts = 'holdfast_jobs{state="RUNNING"} 1.0', 'holdfast_hosts{state="cordoned"} 1.0'
    gpus = ('holdfast_gpus{state="used"} 1.0', 'holdfast_gpus{state="unavailable"} 1.0')
    # A host may seem silent for a moment where many tests run at once.
    cluster.until(lambda: tells(cluster, cluster.dir.name, jobs, hosts, *gpus), 90)
    for daemon in ("host-0", "host-1", "host-2"):
        cluster.until(partial(tells, cluster, daemon, "holdfast_agent_connected 1.0"))
    assert tells(cluster, "host-2", 'holdfast_agent_workers{state="RUNNING"} 1.0')
    assert not tells(cluster, "host-2", "holdfast_agent_launch_seconds_count 0.0")
    assert re.search(r"host host-1 +cordoned: a fan is loud\n", cluster.holdfast("status").stdout)
    status = json.loads(cluster.holdfast("status", "-o", "json").stdout)
    assert (status["gpus"]["used"], status["jobs"]["RUNNING"]) == (1, 1)
    cluster.holdfast("host", "uncordon", "host-1")
    cluster.end(job)


@pytest.mark.require("promtool")
def test_promtool_takes_what_every_daemon_tells(cluster: DevCluster) -> None:
    cluster.until(lambda: all_listen(cluster), 90)
    for name, page in pages(cluster).items():
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), name


def test_a_drained_hosts_work_saves_at_the_warning_and_goes_on_elsewhere(
    cluster: DevCluster, tmp_path: Path
) -> None:
    scheduling = {
        "warningSignal": {"signal": "SIGUSR1", "before": "25s"},
        "hostSelector": {"labels": {"rack": "b"}},
    }
    job = submit(cluster, tmp_path, [sys.executable, "-c", SAVES], scheduling=scheduling)
    (first,) = hosts_of(cluster, job)
    (other,) = {"host-1", "host-2"} - {first}
    cluster.until(lambda: "up" in cluster.holdfast("logs", job).stdout)
    began = time.monotonic()
    cluster.holdfast("host", "drain", first, "--deadline", "28s", "--reason", "new kernel", "--wait")
    assert time.monotonic() - began < 20, "it did not wait for the deadline"
    cluster.until(lambda: host(cluster, first)["drained"])
    assert f"{first}  READY drained" in cluster.holdfast("host", "show", first).stdout
    assert "READY drained" in cluster.holdfast("host", "list").stdout
    cluster.until(lambda: hosts_of(cluster, job) == {other})
    shown = cluster.job(job)
    assert (shown["generation"], shown["recoveries"][0]["endReason"]) == (2, "DRAINED")
    assert "saved" in cluster.holdfast("logs", job, "--generation", "1").stdout
    cluster.holdfast("host", "uncordon", first)
    assert "READY drained" not in cluster.holdfast("host", "list").stdout
    cluster.end(job)


def test_a_pause_lets_the_job_save(cluster: DevCluster, tmp_path: Path) -> None:
    scheduling = {"warningSignal": {"signal": "SIGUSR1", "before": "60s"}}
    job = submit(cluster, tmp_path, [sys.executable, "-c", SAVES], scheduling=scheduling)
    cluster.reach(job, "RUNNING")
    cluster.until(lambda: "up" in cluster.holdfast("logs", job).stdout)
    cluster.holdfast("job", "pause", job)
    cluster.reach(job, "PAUSED", timeout=20)
    cluster.holdfast("job", "resume", job)
    assert cluster.reach(job, "RUNNING")["generation"] == 2
    cluster.end(job)


def test_a_host_that_is_cut_off_stops_its_work_before_it_is_replaced(cluster: DevCluster, tmp_path: Path) -> None:
    settings = cluster.dir / "controller.toml"
    before = settings.read_text()
    settings.write_text(before.replace(SHORT_LEASES, "") + SHORT_LEASES)
    cluster.kill_controller()
    cluster.restart()
    tolerance = {"disconnectPolicy": "STOP_AND_REPLACE"}
    job = submit(cluster, tmp_path, [sys.executable, "-c", SAVES], faultTolerance=tolerance)
    (first,) = hosts_of(cluster, job)
    agent = cluster.agent_pid(first)
    time.sleep(6)
    assert cluster.job(job)["generation"] == 1, "it runs on while its host is heard"
    os.kill(agent, signal.SIGSTOP)
    try:
        cluster.until(lambda: not cluster.ranks(job), timeout=20)
        assert cluster.job(job)["generation"] == 1, "nothing was started elsewhere before the ranks were gone"
        cluster.until(lambda: hosts_of(cluster, job) - {first}, timeout=40)
        again = cluster.job(job)
        assert again["generation"] == 2
        assert [e["reason"] for e in again["workers"][0]["exits"]] == ["LOST_HOST"]
    finally:
        os.kill(agent, signal.SIGCONT)
    cluster.until(lambda: late(cluster, job))
    assert set(cluster.ranks(job).values()).isdisjoint({first})
    (told,) = late(cluster, job)
    assert told["reason"] == "STOPPED"
    assert told["message"].startswith("stopped by itself: no word from the controller for 3.69 s")
    assert cluster.job(job)["state"] == "JOB_STATE_RUNNING"
    assert processes.stat(agent) is not None
    cluster.end(job)
    settings.write_text(before)
    cluster.kill_controller()
    cluster.restart()


def late(cluster: DevCluster, job: str) -> list[dict[str, Any]]:
    exits = [exit_ for worker in cluster.job(job)["workers"] for exit_ in worker["exits"]]
    return [exit_["lateExit"] for exit_ in exits if exit_["lateExit"]]
