"""Faulty GPUs in a whole cluster: two hosts whose agents read a scripted driver each, by the official binding."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.cli_cluster import DevCluster, rank_pids, started
from tests.support.fake_nvml.library import (
    ASLEEP,
    FIGURES,
    IDENTITY,
    INVENTORY,
    SPINNING,
    TRAINING,
    FakeNvml,
    build,
)

from holdfast import dev

pytestmark = pytest.mark.require("cc")
Json = dict[str, Any]
XID_95 = "Xid 95 (uncontained memory error)"


def gpus_of(name: str) -> list[str]:
    """The lines of a host's driver."""
    return [f"gpu GPU-{name}-{i} 00000000:{0x17 + i:02X}:00.0 85899345920 0 NVIDIA H100 80GB" for i in range(2)]


@dataclass
class Site:
    """A cluster of host-0 and host-1, with two GPUs each."""

    cluster: DevCluster
    drivers: dict[str, FakeNvml]

    def host(self, name: str = "host-0") -> Json:
        return self.cluster.host(name)

    def faults(self, name: str = "host-0") -> list[list[str]]:
        return [[fault["cause"] for fault in gpu["faults"]] for gpu in self.host(name)["gpus"]]

    def tells(self, *faults: list[str]) -> None:
        """Wait until the controller knows these faults of host-0's GPUs."""
        self.cluster.until(lambda: self.faults() == list(faults), 40)

    def submit(self, gpus: int, *options: str) -> str:
        sleep = (sys.executable, "-c", "import time; time.sleep(600)")
        return self.cluster.detach("--gpus", str(gpus), "--processes-per-worker", "1", *options, "--", *sleep)

    def placed(self, job: str) -> str:
        """The host on which a job runs."""
        (worker,) = self.cluster.reach(job, "RUNNING")["workers"]
        return str(worker["host"])

    def well(self, name: str = "host-0") -> None:
        """The host's driver has nothing more to tell, and nothing is wrong as far as it says."""
        self.drivers[name].replace(*gpus_of(name))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    library = build(tmp_path)
    drivers = {name: FakeNvml(library, tmp_path / f"{name}.script") for name in ("host-0", "host-1")}
    for name, driver in drivers.items():
        driver.say(*gpus_of(name))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LD_LIBRARY_PATH", str(library))
        environment.setenv("FAKE_NVML_SCRIPT", str(drivers["host-0"].script))
        with started(tmp_path / "c", hosts=1, gpus=0) as cluster:
            environment.setenv("FAKE_NVML_SCRIPT", str(drivers["host-1"].script))
            dev.start(cluster.dir, hosts=2, gpus=0)
            environment.setenv("FAKE_NVML_SCRIPT", str(drivers["host-0"].script))
            yield Site(cluster, drivers)


def test_fault_of_an_idle_gpu_keeps_work_away_over_restarts_until_an_admin_clears_it(site: Site) -> None:
    assert site.faults() == [[], []]
    site.drivers["host-0"].say("xid 0 95", "xid 1 31")
    site.tells([XID_95], [])
    assert "GPU 0: Xid 95 (uncontained memory error); needs a reset" in site.cluster.holdfast("host", "list").stdout
    shown = site.cluster.holdfast("host", "show", "host-0").stdout
    assert "or: holdfast host uncordon host-0 --gpu 0" in shown
    assert not site.host()["cordoned"]

    assert site.placed(site.submit(2)) == "host-1"
    alone = site.submit(1)  # the other GPU of the host is well
    assert site.placed(alone) == "host-0"
    waiting = site.submit(2)
    site.cluster.until(lambda: "out of service: host-0 GPU 0: Xid 95" in site.cluster.job(waiting)["waitReason"])
    assert "out of service" in site.cluster.holdfast("ps", "-o", "wide").stdout
    site.cluster.end(alone)

    site.well()  # a driver tells of an Xid once: what is known now is what was kept
    site.cluster.kill("controller", "host-0")
    site.cluster.restart()
    site.tells([XID_95], [])
    assert site.cluster.job(waiting)["state"] == "JOB_STATE_QUEUED"

    told = site.cluster.holdfast("host", "uncordon", "host-0", "--gpu", "0")
    assert "host host-0: GPU 0 in service" in told.stderr
    assert site.placed(waiting) == "host-0"
    assert site.faults() == [[], []]
    site.cluster.kill("host-0")
    site.cluster.restart()
    assert site.faults() == [[], []]


def test_fault_on_a_running_job_leaves_it_be_and_moves_it_when_it_ends(site: Site) -> None:
    job = site.submit(1)
    first = site.placed(job)
    other = {"host-0": "host-1", "host-1": "host-0"}[first]
    site.drivers[first].say("xid 0 79", "xid 1 79")
    site.cluster.until(lambda: site.host(first)["cordoned"], 40)
    assert "needs a reboot of its host" in site.host(first)["cordonReason"]
    assert site.placed(site.submit(1)) == other  # though the host has another GPU
    assert site.cluster.job(job)["generation"] == 1

    (pid,) = rank_pids(site.cluster.job(job)).values()
    os.kill(pid, signal.SIGKILL)
    site.cluster.until(lambda: site.cluster.job(job)["generation"] == 2, 40)
    assert site.placed(job) == other
    (recovery,) = site.cluster.job(job)["recoveries"]
    assert recovery["endReason"] == "HARDWARE_FAULT"
    # Uncordoning the host itself changes nothing: its GPUs are not repaired.
    told = site.cluster.holdfast("host", "uncordon", first).stderr
    assert f"host {first} still takes no work" in told


def test_lost_gpu_is_out_of_service_with_its_host_though_it_answers_again(site: Site) -> None:
    site.drivers["host-0"].lose(1, *FIGURES, *INVENTORY, *IDENTITY)
    site.cluster.until(lambda: site.faults()[1], 40)
    assert site.host()["cordoned"]
    assert site.placed(site.submit(2)) == "host-1"
    site.well()  # it answers again, which says nothing of what has become of it
    site.cluster.kill("host-0")
    site.cluster.restart()
    assert site.faults() == [[], ["lost (it has fallen off the bus)"]]
    site.cluster.holdfast("host", "uncordon", "host-0", "--gpu", "GPU-host-0-1")
    assert not site.host()["cordoned"]
    assert site.placed(site.submit(2)) == "host-0"


# Steps four times a second until told to stop; then rank 1 sleeps and rank 0 waits for it. Later generations end.
TRAINS = """
import os, sys, time
folder, rank = sys.argv[1], int(os.environ["RANK"])
step = 0
while os.environ["HOLDFAST_GENERATION"] == "1":
    if not os.path.exists(f"{folder}/stop"):
        step += 1
        if step % 22 == 0:
            print(f"step={step}", flush=True)
        time.sleep(0.25)
    elif rank:
        time.sleep(60)
    else:
        os.read(os.pipe()[0], 1)
"""


@pytest.mark.slow
def test_gang_that_hangs_on_a_faulty_gpu_goes_on_elsewhere_over_restarts_of_both_daemons(
    site: Site, tmp_path: Path
) -> None:
    worker = {
        "replicaCount": 1,
        "machineSpec": {"acceleratorCount": 2},
        "processesPerWorker": 2,
        "processSpec": {"command": [sys.executable, "-c", TRAINS, str(tmp_path)]},
    }
    wishes = {"action": "RESTART", "floor": "5s", "startupTimeout": "60s"}
    spec = {"workerPoolSpecs": [worker], "faultTolerance": {"hangDetection": wishes}}
    text = yaml.safe_dump({"displayName": "gang", "jobSpec": spec})
    for name in site.drivers:
        site.drivers[name].do(range(2), ASLEEP)
    job = str(site.cluster.holdfast("submit", "-", input=text).stdout.strip())
    first = site.placed(job)
    time.sleep(12)
    site.drivers[first].do(range(2), TRAINING)
    time.sleep(40)
    (tmp_path / "stop").touch()
    site.drivers[first].do(range(2), SPINNING)
    site.drivers[first].say("xid 1 79")
    site.cluster.until(lambda: site.host(first)["cordoned"], 40)
    site.well(first)
    site.cluster.kill("controller", first)  # neither remembers the Xid but by what it has kept
    site.cluster.restart()

    done = site.cluster.reach(job, "SUCCEEDED", "FAILED", timeout=240)
    print(done["hangs"], done["recoveries"])
    assert done["state"] == "JOB_STATE_SUCCEEDED"
    assert [worker["host"] for worker in done["workers"]] != [first]
    assert done["recoveries"][-1]["endReason"] == "HANG"
    assert any("Xid 79" in cause for causes in site.faults(first) for cause in causes)
