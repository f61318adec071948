"""A host that only its BMC can reach: the packaged fence command cuts its power, and its job goes on elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.machines.cluster import USER, Cluster, made, switched_on, tell
from tests.machines.conftest import NEEDS
from tests.machines.machine import Machine
from tests.support.bmc import Bmc, ipmi

pytestmark = [*NEEDS, pytest.mark.require("ipmi")]
LOST_AFTER_S = 66
# As the page has it, with the example of the package.
SETTINGS = r"""
set -e
cp /usr/share/holdfast/fence/ipmi.sh /etc/holdfast/fence
printf 'root\ncalvin\n' > /etc/holdfast/bmc
chmod 600 /etc/holdfast/bmc
chown holdfast /etc/holdfast/bmc
printf '[fence]\ncommand = ["/etc/holdfast/fence"]\nafter = "16s"\n' >> /etc/holdfast/controller.toml
holdfast-controller --check
systemctl restart holdfast-controller
"""


@pytest.fixture
def cluster(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Cluster]:
    """A controller, which is no host, and two hosts; their BMCs are on the wire too."""
    with switched_on(lower, tmp_path, "ctl", "gpu-1", "gpu-2") as found:
        made(found, packages)
        found.holdfast("host cordon ctl --reason 'the controller alone'")
        found["ctl"].sh(f"echo '{found.network.address('admin')} gpu-1-bmc gpu-2-bmc' >> /etc/hosts")
        found["ctl"].sh(SETTINGS)
        found.until(r"gpu-1 +READY[\s\S]*gpu-2 +READY", "host list")
        yield found


def bmc_of(cluster: Cluster, machine: Machine, folder: Path) -> AbstractContextManager[Bmc]:
    """A BMC that can tell whether the machine runs, and cut its power."""
    runs = f"grep -q 'populated 1' {machine.group}/cgroup.events"
    off = f"echo 1 > {machine.group}/cgroup.kill"
    return ipmi(folder, cluster.network, "admin", asks="ctl", runs=runs, off=off)


def test_a_host_that_only_its_bmc_can_reach_is_switched_off_and_its_job_goes_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.holdfast("run --detach --workdir /tmp -- sleep 600", who=USER).split()[-1]
    cluster.until("RUNNING", "ps")
    (lost,) = {worker["host"] for worker in cluster.job(job)["workers"]}
    spare = next(name for name in ("gpu-1", "gpu-2") if name != lost)
    with bmc_of(cluster, cluster[lost], tmp_path / "bmc") as bmc:
        cluster.network.unplug(lost)
        began = time.monotonic()
        tell(f"{job} runs on {lost}, which nobody hears any more")
        history = cluster.until("fence", f"host events {lost}")
        assert f"switched off by /etc/holdfast/fence: {lost}-bmc: Chassis Power is off" in history
        cluster.until(
            f'"generation": 2[\\s\\S]*"host": "{spare}"', f"job show {job} -o json", within_s=LOST_AFTER_S
        )
        cluster.until("RUNNING", "ps")
        took = time.monotonic() - began
        tell(f"{lost} is switched off, and its job runs on {spare}: {took:.0f} s after its last word")
        assert took < LOST_AFTER_S and bmc.calls()[-1] == "get power" and "set power 0" in bmc.calls()
    assert "populated 0" in (cluster[lost].group / "cgroup.events").read_text()
    history = cluster.holdfast(f"host events {lost}")
    print(history)
    assert f"{lost} lost" not in history
    (exit_,) = [found for worker in cluster.job(job)["workers"] for found in worker["exits"]]
    assert (exit_["generation"], exit_["reason"]) == (1, "LOST_HOST")
    assert "fence command" in cluster.holdfast("audit --trail admins")

    cluster.cut_power(lost)
    cluster.power_again(lost)
    cluster.until(f"{lost} +READY", "host list")
    assert "RUNNING" in cluster.holdfast("ps") and cluster.job(job)["generation"] == 2
    tell(f"{lost} is on again, and back by itself")
    cluster.holdfast(f"cancel {job}")
