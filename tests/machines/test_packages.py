"""Packages on a machine with systemd: installed, worked with, restarted, upgraded, rebooted, removed. Minutes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import pki
from holdfast.identity import Identity, Kind

from .machine import Machine, booted, tree

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("HOLDFAST_MACHINES", "/var/cache/holdfast-machines"))
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter", "dpkg-deb")
pytestmark = [
    pytest.mark.machines,
    pytest.mark.require("root", "mount", "cgroup"),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason="needs debootstrap, systemd-nspawn, nsenter and dpkg-deb"
    ),
]
STATE = "/var/lib/holdfast/controller"
CONTROLLER = f"""listen = "127.0.0.1:7443"
cluster = "main"
state_dir = "{STATE}"
ca = "{STATE}/ca/ca.pem"
cert = "{STATE}/controller.pem"
key = "{STATE}/controller.key"
"""
AGENT = """controller = "127.0.0.1:7443"
name = "h1"
address = "127.0.0.1"
state_dir = "/var/lib/holdfast/agent"
log_dir = "/var/log/holdfast"
ca = "ca.pem"
cert = "host.pem"
key = "host.key"
allow_root_workers = true
"""
CLIENT = """controller = "127.0.0.1:7443"
ca = "ca.pem"
cert = "user.pem"
key = "user.key"
"""
WORK = "trap 'echo saved; exit 0' TERM; while true; do sleep 1; done"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of all parts, made by the Python of this environment."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(ROOT / "deploy/packages/build.py"), "--format=deb", f"--output={folder}"]
    subprocess.run(command, check=True, timeout=1200)
    return sorted(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def lower() -> Path:
    return tree(CACHE)


@pytest.fixture
def machine(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Machine]:
    """With all packages and settings, and nothing started."""
    with booted(lower, tmp_path, "h1") as found:
        for package in packages:
            found.put(package, f"/root/{package.name}")
        found.run("sh", "-c", "dpkg -i /root/*.deb")
        settle(found, tmp_path / "pki")
        yield found


def settle(machine: Machine, folder: Path) -> None:
    """Certificates and settings, as an admin would have them who makes certificates by other means."""
    folder.mkdir()
    pki.create_ca("main", folder)
    pki.issue(folder, Identity("main", Kind.CONTROLLER, "controller"), folder, "controller", server=True)
    pki.issue(folder, Identity("main", Kind.HOST, "h1"), folder, "host")
    pki.issue(folder, Identity("main", Kind.USER, "ann"), folder, "user")
    machine.run("mkdir", "-p", f"{STATE}/ca")
    machine.put(folder / "ca.pem", f"{STATE}/ca/ca.pem")
    for name in ("controller.pem", "controller.key"):
        machine.put(folder / name, f"{STATE}/{name}")
    for name, text in (("controller.toml", CONTROLLER), ("agent.toml", AGENT), ("client.toml", CLIENT)):
        (folder / name).write_text(text)
        machine.put(folder / name, f"/etc/holdfast/{name}")
    for name in ("ca.pem", "host.pem", "host.key", "user.pem", "user.key"):
        machine.put(folder / name, f"/etc/holdfast/{name}")


def rank(machine: Machine) -> str:
    """Its process, as the machine counts."""
    return machine.run(
        "sh", "-c", "head -n1 /sys/fs/cgroup/holdfast.slice/holdfast-*.scope/g*/cgroup.procs"
    ).strip()


def test_the_life_of_a_machine(machine: Machine, lower: Path, tmp_path: Path) -> None:
    services = ("holdfast-controller", "holdfast-agent")
    for service in services:
        assert machine.run("systemctl", "is-active", service, fails=True).strip() == "inactive"
    machine.run("systemctl", "enable", "--now", *services)
    machine.until("READY", "holdfast", "host", "list")
    machine.run("holdfast", "run", "--detach", "--name", "t", "--", "sh", "-c", WORK)
    machine.until("RUNNING", "holdfast", "ps")
    scope = machine.until("active (running)", "systemctl", "status", "holdfast-t-*.scope", "--no-pager")
    assert "Worker workerpool0-0 of Holdfast job t-" in scope

    first = rank(machine)
    machine.run("systemctl", "restart", "holdfast-agent")
    machine.until("1 worker, connected", "systemctl", "status", "holdfast-agent", "--no-pager")
    assert rank(machine) == first
    upgraded = machine.run("sh", "-c", "dpkg -i /root/holdfast-agent_*.deb")
    assert re.search(r"shim +(\d+) +\1 +unchanged", upgraded), upgraded
    assert re.search(rf"rank 0 +{first} +{first} +unchanged", upgraded), upgraded
    machine.until("1 worker, connected", "systemctl", "status", "holdfast-agent", "--no-pager")
    assert rank(machine) == first

    # A packaged host has no more to mend than a machine without a network has.
    examined = machine.run("sh", "-c", "holdfast doctor -o json || true")
    saw = {each["check"]: each for each in json.loads(examined)["findings"]}
    assert saw["service.unit"]["saw"] == "enabled, active"
    well = (
        "service.agent",
        "certificates.chain",
        "controller.call",
        "limits.nofile",
        "limits.memlock",
        "cgroups.tree",
    )
    assert [saw[check]["status"] for check in well] == ["ok"] * len(well), examined

    refused = machine.run("dpkg", "-r", "holdfast-agent", fails=True)
    assert "workers run on this host. Drain it first" in refused
    machine.until("active", "systemctl", "is-active", "holdfast-agent")
    assert rank(machine) == first

    machine.power_off()
    with booted(lower, tmp_path, "h1") as again:
        again.until("RUNNING", "holdfast", "ps")
        assert "HOST_SHUTDOWN" in again.run("sh", "-c", "holdfast ps -o json")
        again.run("sh", "-c", "holdfast cancel $(holdfast ps -o name)")
        again.until("CANCELLED", "holdfast", "ps", "--all")
        again.run("dpkg", "-r", "holdfast-agent")
