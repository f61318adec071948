"""Packages on a machine with systemd: installed, worked with, restarted, upgraded, rebooted, removed. Minutes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.machines.cluster import ADMIN, USER, employ, init, install, join, ranks, tell
from tests.machines.conftest import NEEDS, NEXT
from tests.machines.machine import Machine, booted

pytestmark = NEEDS
HERE = "127.0.0.1"
WORK = "trap 'echo saved; exit 0' TERM; while true; do sleep 1; done"


def holdfast(machine: Machine, *words: str) -> str:
    return machine.run("holdfast", *words, env=ADMIN)


def until(machine: Machine, wanted: str, *words: str) -> str:
    settings = [f"{name}={value}" for name, value in ADMIN.items()]
    return machine.until(wanted, "env", *settings, "holdfast", *words)


def equip(machine: Machine, packages: Sequence[Path]) -> None:
    """All packages, and a person to work for."""
    tell("packages on a machine")
    install(machine, packages, "controller", "agent", "client")
    employ(machine)


@pytest.fixture
def machine(lower: Path, tmp_path: Path, packages: list[Path]) -> Iterator[Machine]:
    """A cluster of itself."""
    with booted(lower, tmp_path, "h1") as found:
        equip(found, packages)
        for service in ("holdfast-controller", "holdfast-agent"):
            assert found.run("systemctl", "is-active", service, fails=True).strip() == "inactive"
        init(found, HERE)
        until(found, "", "host", "list")
        join(found, found, f'address = "{HERE}"', f'worker_user = "{USER}"')
        until(found, "READY", "host", "list")
        yield found


def oldest(machine: Machine) -> tuple[str, str]:
    """The rank itself, and when it was started; what it starts comes and goes."""
    return min(ranks(machine).items(), key=lambda found: int(found[1]))


def test_the_life_of_a_machine(machine: Machine, lower: Path, tmp_path: Path, packages: list[Path]) -> None:
    holdfast(machine, "run", "--detach", "--name", "t", "--workdir", "/tmp", "--", "sh", "-c", WORK)
    until(machine, "RUNNING", "ps")
    scope = machine.until("active \\(running\\)", "systemctl", "status", "holdfast-t-*.scope", "--no-pager")
    assert "Worker workerpool0-0 of Holdfast job t-" in scope
    tell("a worker in a scope of its own")

    first = oldest(machine)
    machine.run("systemctl", "restart", "holdfast-agent")
    machine.until("1 worker, connected", "systemctl", "status", "holdfast-agent", "--no-pager")
    assert oldest(machine) == first
    upgraded = machine.sh("dpkg -i /root/packages/holdfast-agent_*.deb")
    assert re.search(r"shim +(\d+) +\1 +unchanged", upgraded), upgraded
    pid, _ = first
    assert re.search(rf"rank 0 +{pid} +{pid} +unchanged", upgraded), upgraded
    machine.until("1 worker, connected", "systemctl", "status", "holdfast-agent", "--no-pager")
    assert oldest(machine) == first

    # A packaged host has no more to mend than a machine without a network has.
    examined = machine.sh("holdfast doctor -o json || true")
    saw = {each["check"]: each for each in json.loads(examined)["findings"]}
    assert saw["service.unit"]["saw"] == "enabled, active"
    well = ("service.agent", "certificates.chain", "controller.call")
    assert [saw[check]["status"] for check in well] == ["ok"] * len(well), examined

    refused = machine.run("dpkg", "-r", "holdfast-agent", fails=True)
    assert "workers run on this host. Drain it first" in refused
    machine.until("active", "systemctl", "is-active", "holdfast-agent")
    assert oldest(machine) == first

    machine.power_off()
    tell("powered off")
    with booted(lower, tmp_path, "h1") as again:
        until(again, "RUNNING", "ps")
        assert "HOST_SHUTDOWN" in holdfast(again, "ps", "-o", "json")
        again.sh(f"export HOLDFAST_CONFIG={ADMIN['HOLDFAST_CONFIG']}; holdfast cancel $(holdfast ps -o name)")
        until(again, "CANCELLED", "ps", "--all")
        tell("booted again; its work has moved, and come back")
        removed(again, packages)


def removed(machine: Machine, packages: Sequence[Path]) -> None:
    """Packages are what was packed, leave nothing that runs, and keep what can't be had again."""
    assert machine.run("dpkg", "-V", "holdfast-agent", "holdfast-controller", "holdfast-client") == ""
    machine.sh("echo PROXY=x >> /etc/holdfast/worker.env")
    install(machine, [path for path in packages if "holdfast-agent" in path.name], "agent")
    assert "PROXY=x" in machine.sh("cat /etc/holdfast/worker.env"), "an upgrade keeps settings"
    machine.run("dpkg", "-r", "holdfast-agent", "holdfast-controller", "holdfast-client")
    left = machine.sh("ls /etc/holdfast /var/lib/holdfast")
    assert {"agent.toml", "agent.key", "controller.toml", "worker.env"} <= set(left.split())
    assert machine.run("pgrep", "-fl", "/opt/holdfast", fails=True) == ""
    told = machine.run("dpkg", "-P", "holdfast-agent", "holdfast-controller", "holdfast-client")
    assert "left for you to delete: /var/log/holdfast, the output of jobs" in told
    assert "left for you to delete: /var/lib/holdfast/controller, the cluster's CA" in told
    found = machine.sh("find / -xdev -path /proc -prune -o -path '*holdfast*' ! -path '/root/*' -print")
    kept = ("/etc/holdfast", "/var/lib/holdfast", "/var/log/holdfast", "/var/log/apt", "/var/lib/dpkg")
    assert [path for path in found.splitlines() if not path.startswith(kept)] == []
    assert machine.sh("ls /etc/holdfast").split() == ["admin", "ca.pem", "controller.toml"]
    assert machine.sh("ls /var/lib/holdfast").split() == ["controller"]
    assert "ca" in machine.sh("ls /var/lib/holdfast/controller").split()
    tell("removed and purged: the cluster's CA and log are left, and nothing that runs")


def test_the_rpm_is_installed_upgraded_and_removed(lower: Path, tmp_path: Path, rpms: list[Path]) -> None:
    """By rpm itself, though on Debian: what it depends on is there by other names."""
    first, second = rpms
    with booted(lower, tmp_path, "h1") as machine:
        for rpm in rpms:
            machine.put(rpm, f"/root/{rpm.name}")
        rpm_here = ("rpm", "--nodeps", "--dbpath", "/root/rpms")
        machine.run(*rpm_here, "-i", f"/root/{first.name}")
        assert machine.run("holdfast-agent", "--version").startswith("holdfast-agent 0.")
        assert machine.run("systemctl", "is-enabled", "holdfast-agent", fails=True).strip() == "disabled"
        assert machine.sh("stat -c '%a %U' /var/lib/holdfast/agent").strip() == "711 root"
        machine.sh("echo PROXY=x >> /etc/holdfast/worker.env")

        machine.run(*rpm_here, "-U", f"/root/{second.name}")
        assert machine.run("holdfast-agent", "--version").strip() == f"holdfast-agent {NEXT}"
        assert "PROXY=x" in machine.sh("cat /etc/holdfast/worker.env"), "an upgrade keeps settings"
        assert "worker.env" in machine.run(*rpm_here, "-V", "holdfast-agent", fails=True), (
            "and nothing else is changed"
        )

        machine.run(*rpm_here, "-e", "holdfast-agent")
        assert machine.sh("ls /usr/bin/holdfast-agent /opt/holdfast/agent", fails=True).count("No such file") == 2
        tell("the rpm was installed, upgraded and removed")
