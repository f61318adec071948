"""The controller's machine is lost: its backup on another one, a training that goes on, Prometheus on a third."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machines.cluster import UID, USER, Cluster, employ, install, join, log_in, ranks, switched_on, tell
from tests.machines.conftest import NEEDS, ROOT
from tests.machines.machine import PATIENCE_S, together

pytestmark = [*NEEDS, pytest.mark.require("prometheus")]
NAME = "ctl.lab"
"""Of whichever machine has the controller, as the example for Prometheus has it."""
OPERATIONS = ROOT / "docs/admins/operations.md"
UNIT = """[Service]
User=prometheus
ExecStart=/usr/bin/prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/var/lib/prometheus/data
[Install]
WantedBy=multi-user.target
"""
ASK = "import sys; from urllib.request import urlopen; print(urlopen(sys.argv[1]).read().decode())"


def prometheus(path: str) -> tuple[str, ...]:
    """What asks Prometheus, on its machine."""
    return "python3", "-c", ASK, f"http://127.0.0.1:9090/api/v1/{path}"


def lines_of(heading: str) -> str:
    """The first commands below a heading of the operations page, as they are printed, to be run by sh."""
    found = re.search(rf"^## {heading}\n(?:(?!^## ).*\n)*?```\n([\s\S]*?)```", OPERATIONS.read_text(), re.MULTILINE)
    assert found, heading
    return f"set -ex\n{found[1]}"


def called(cluster: Cluster, name: str) -> None:
    """Have the controller's name lead to a machine, on all that run."""
    entry = f"{cluster.network.address(name)} {NAME}"
    for machine in cluster.machines.values():
        machine.sh(f"sed -i '/ {NAME}$/d' /etc/hosts && echo '{entry}' >> /etc/hosts")


@pytest.fixture
def cluster(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Cluster]:
    """A controller, a host, a machine with nothing yet, and one for Prometheus."""
    with switched_on(lower, tmp_path, "old", "gpu", "new", "mon") as found:
        parts = {
            "old": ("controller", "client"),
            "gpu": ("agent",),
            "new": ("controller", "client"),
            "mon": ("client",),
        }
        together(lambda name: install(found[name], packages, *parts[name]), found.names)
        called(found, "old")
        found["old"].run("holdfast-controller", "init", "--advertise", NAME)
        found["old"].sh("sed -i '1i http_port = 8443' /etc/holdfast/controller.toml")
        found["old"].run("systemctl", "enable", "--now", "holdfast-controller")
        found.until("", "host list")
        for name in ("old", "gpu"):
            employ(found[name])
        join(found["old"], found["gpu"], f'metrics_listen = "{found.network.address("gpu")}:9470"')
        log_in(found["old"])
        shutil.copytree(ROOT / "examples/digits", found.shared / "digits")
        for path in (found.shared, *found.shared.rglob("*")):
            os.chown(path, UID, UID)
        found.until("gpu +READY", "host list")
        tell("a controller and a host are ready")
        yield found


def watched(cluster: Cluster) -> None:
    """Prometheus on its own machine, by docs/admins/metrics.md and the files of the controller's package."""
    mon = cluster["mon"]
    mon.run("useradd", "--create-home", "--home-dir", "/var/lib/prometheus", "prometheus")
    cluster.holdfast("user add prometheus --role viewer")
    line = cluster.holdfast("user token prometheus")
    mon.run("runuser", "-l", "prometheus", "-c", line)
    cluster["old"].sh("cp /usr/share/holdfast/monitoring/*.yml /shared/")
    mon.sh("mkdir /etc/prometheus && cp /shared/holdfast.rules.yml /etc/prometheus/")
    mon.sh("cp /shared/prometheus.example.yml /etc/prometheus/prometheus.yml")
    targets = json.dumps([{"targets": [f"{cluster.network.address('gpu')}:9470"]}])
    mon.sh(f"echo '{targets}' > /etc/prometheus/holdfast-hosts.json")
    found = shutil.which("prometheus")
    assert found
    mon.put(Path(found), "/usr/bin/prometheus")
    mon.sh("chmod 755 /usr/bin/prometheus")
    (cluster.shared / "prometheus.service").write_text(UNIT)
    mon.sh("cp /shared/prometheus.service /etc/systemd/system/")
    mon.run("systemctl", "enable", "--now", "prometheus")


def scraped(cluster: Cluster) -> None:
    """Wait until Prometheus gets every page, and has the figures of both."""
    both = r'(?=[\s\S]*holdfast-controller"[\s\S]*)(?=[\s\S]*holdfast-agent")(?![\s\S]*"health":"(down|unknown)")'
    cluster["mon"].until(both, *prometheus("targets?state=active"))
    for query, wanted in (("holdfast_agent_connected", "1"), ("holdfast_hosts{state=%22ready%22}", "1")):
        cluster["mon"].until(f'"{wanted}"\\]', *prometheus(f"query?query={query}"))


def trains(cluster: Cluster, epochs: int) -> str:
    """A job of one rank, of ann's, once it trains."""
    command = f"exec python3 train.py --epochs {epochs} --checkpoint-every 20 --step-time $(cat /shared/pace)"
    process = {"command": ["sh", "-c", command], "workingDirectory": "/shared/digits"}
    pool = {"replicaCount": 1, "machineSpec": {"cpuCount": 1}, "processSpec": process}
    (cluster.shared / "job.json").write_text(
        json.dumps({"displayName": "digits", "jobSpec": {"workerPoolSpecs": [pool]}})
    )
    job = cluster.holdfast("submit /shared/job.json", who=USER).strip()
    cluster.until("rank=0 ", f"logs {job} --generation 1")
    return job


def test_a_backup_on_another_machine_goes_on_with_a_training_that_never_stopped(cluster: Cluster) -> None:
    watched(cluster)
    scraped(cluster)
    tell("a real Prometheus scrapes controller and host from a third machine")
    (cluster.shared / "pace").write_text("0.2")
    job = trains(cluster, 60)
    before = ranks(cluster["gpu"])
    assert before

    print(cluster["old"].sh(lines_of("Back up")))
    cluster["old"].sh("cp /srv/backup/holdfast.hf /root/backup.pass /shared/")
    tell("the power of the controller's machine is cut, for good")
    cluster.cut_power("old")
    cluster["mon"].until('"health":"down"', *prometheus("targets?state=active"))

    new = cluster["new"]
    del cluster.machines["old"]
    cluster.names = ("new", "gpu", "mon")
    called(cluster, "new")
    new.sh("mkdir -p /srv/backup && cp /shared/holdfast.hf /srv/backup/ && cp /shared/backup.pass /root/")
    print(new.sh(lines_of("Restore")))
    new.sh("mkdir -p /etc/holdfast/admin && cp /etc/holdfast/root/* /etc/holdfast/admin/")
    cluster.until("gpu +READY", "host list")
    cluster.until("RUNNING", "job list -o wide")
    assert cluster.job(job)["generation"] == 1
    assert ranks(cluster["gpu"]) == before, "no rank has noticed"
    scraped(cluster)
    tell("restored on another machine: the same ranks train, and Prometheus is back by itself")

    tell("the power of the whole site is cut")
    cut_at = time.monotonic()
    for name in cluster.names:
        cluster.cut_power(name)
    (cluster.shared / "pace").write_text("0")
    for name in cluster.names:
        cluster.network.plug(name)
    cluster.switch_on(*cluster.names)
    dark_s = time.monotonic() - cut_at
    called(cluster, "new")
    cluster.until(job, "job list --state SUCCEEDED", within_s=2 * PATIENCE_S)
    shown = cluster.job(job)
    exits = [(found["generation"], found["reason"]) for worker in shown["workers"] for found in worker["exits"]]
    assert exits == [(1, "LOST_REBOOT"), (2, "COMPLETED")], exits
    assert "resumed from step" in cluster.holdfast(f"logs {job}")
    print(cluster.holdfast(f"job recoveries {job}"))
    (lost_s,) = [each["lostSeconds"] for each in shown["recoveries"] if each["endReason"] == "LOST_REBOOT"]
    tell(f"dark for {dark_s:.0f} s, of which {lost_s:.0f} s are told as lost")
    assert lost_s > dark_s - 5, "from the last word of the host, and not from its return"
    assert "gpu has booted again" in cluster.holdfast("host events gpu")
    scraped(cluster)
    assert "NAME" in cluster["mon"].run("runuser", "-l", "prometheus", "-c", "holdfast host list")
    tell("everything has come back by itself")
