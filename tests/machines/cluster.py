"""Machines on one wire, as an admin sets them up: packages, ``init``, a line pasted on each host."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.network import Network, joined
from tests.machines.machine import PATIENCE_S, Machine, start, together

ADMIN = {"HOLDFAST_CONFIG": "/etc/holdfast/admin/client.toml"}
USER, UID = "ann", 1001
"""Somebody who trains: a user of the cluster, and the account of the hosts that their workers run as."""
_BEGAN = time.monotonic()


def tell(what: str) -> None:
    """A line of the story, for who watches with ``pytest -s``."""
    print(f"[{time.monotonic() - _BEGAN:4.0f} s] {what}", flush=True)


@dataclass
class Cluster:
    """The first of ``names`` has the controller and the command line."""

    network: Network
    lower: Path
    root: Path
    names: tuple[str, ...]
    machines: dict[str, Machine] = field(default_factory=dict)

    @property
    def shared(self) -> Path:
        """A folder that every machine sees as /shared."""
        return self.root / "shared"

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    @property
    def controller(self) -> Machine:
        return self[self.names[0]]

    def switch_on(self, *names: str) -> None:
        """Boot machines, and wait until nothing is left to be started on them."""
        addresses = "".join(f"{self.network.address(name)} {name}\n" for name in self.names)
        for name in names:
            hosts = self.root / name / "upper/etc/hosts"
            hosts.parent.mkdir(parents=True, exist_ok=True)
            hosts.write_text(f"127.0.0.1 localhost\n{addresses}")
            wire, shared = self.network.namespace(name), [f"{self.shared}:/shared"]
            self.machines[name] = start(self.lower, self.root / name, name, wire, shared)
        together(Machine.booted, [self[name] for name in names])

    def cut_power(self, name: str) -> None:
        """No process of it runs any more, and none of them has said a word to anybody."""
        self.network.unplug(name)
        self[name].cut_power()

    def power_again(self, name: str) -> None:
        self.network.plug(name)
        self.switch_on(name)

    def holdfast(self, line: str, who: str = "root", fails: bool = False) -> str:
        """What the command line says on the controller's machine, to its admin or to somebody else."""
        if who == "root":
            return self.controller.run("holdfast", *shlex.split(line), env=ADMIN, fails=fails)
        return self.controller.run("runuser", "-l", who, "-c", f"holdfast {line}", fails=fails)

    def job(self, job_id: str) -> dict[str, Any]:
        """All that ``job show`` says."""
        shown: dict[str, Any] = json.loads(self.holdfast(f"job show {job_id} -o json"))
        return shown

    def until(self, wanted: str, line: str, within_s: float = PATIENCE_S) -> str:
        """What ``holdfast LINE`` prints for the admin, once it prints what is wanted (a regular expression)."""
        command = [*(f"{name}={value}" for name, value in ADMIN.items()), "holdfast", *shlex.split(line)]
        return self.controller.until(wanted, "env", *command, within_s=within_s)


def install(machine: Machine, packages: Sequence[Path], *parts: str) -> None:
    """Packages of some parts, as docs/admins/install.md says it."""
    chosen = [package for package in packages for part in parts if package.name.startswith(f"holdfast-{part}_")]
    machine.run("mkdir", "-p", "/root/packages")
    for package in chosen:
        machine.put(package, f"/root/packages/{package.name}")
    files = [f"/root/packages/{package.name}" for package in chosen]
    machine.run("apt-get", "install", "--yes", "--quiet", *files)


def init(machine: Machine, advertise: str) -> None:
    """A controller that runs."""
    machine.run("holdfast-controller", "init", "--advertise", advertise)
    machine.run("systemctl", "enable", "--now", "holdfast-controller")


def join(controller: Machine, machine: Machine, *settings: str) -> None:
    """Have a machine join by the line that is printed for it, pasted as it stands, and start its agent."""
    line = controller.run("holdfast", "host", "token", "create", machine.name, env=ADMIN)
    machine.sh(line)
    for setting in settings:
        machine.sh(f"echo {shlex.quote(setting)} >> /etc/holdfast/agent.toml")
    machine.run("systemctl", "enable", "--now", "holdfast-agent")


def employ(machine: Machine) -> None:
    """An account of somebody who trains."""
    machine.run("useradd", "--create-home", "--uid", str(UID), USER)


def log_in(controller: Machine) -> None:
    """Have that person become a user of the cluster."""
    controller.run("holdfast", "user", "add", USER, "--run-as", USER, env=ADMIN)
    line = controller.run("holdfast", "user", "token", USER, env=ADMIN)
    controller.run("runuser", "-l", USER, "-c", line)


@contextlib.contextmanager
def switched_on(lower: Path, root: Path, *names: str) -> Iterator[Cluster]:
    """Machines on one wire, with nothing of Holdfast's, and gone when this is left."""
    print()
    tell(f"booting {', '.join(names)}")
    # Besides, a place on the wire that is no machine, for who looks after them from elsewhere.
    with joined((*names, "admin")) as network:
        network.default_routes()
        cluster = Cluster(network, lower, root, names)
        cluster.shared.mkdir(parents=True)
        try:
            cluster.switch_on(*names)
            yield cluster
        finally:
            for machine in cluster.machines.values():
                machine.cut_power()


def made(cluster: Cluster, packages: Sequence[Path]) -> None:
    """From bare machines to a cluster: all of docs/admins/install.md."""
    tell(f"packages on {len(cluster.names)} machines")
    first = cluster.controller
    together(functools.partial(_equip, cluster, packages), cluster.names)
    tell("holdfast-controller init, and a line for each host")
    init(first, first.name)
    cluster.until("", "host list")
    for name in cluster.names:
        join(first, cluster[name])
    log_in(first)


def _equip(cluster: Cluster, packages: Sequence[Path], name: str) -> None:
    parts = ("agent", "controller", "client") if name == cluster.names[0] else ("agent",)
    install(cluster[name], packages, *parts)
    employ(cluster[name])


def ranks(machine: Machine) -> dict[str, str]:
    """The processes of ranks on a machine: by number, when each was started."""
    found = machine.sh(
        "cat /sys/fs/cgroup/holdfast.slice/holdfast-*.scope/g*/cgroup.procs 2>/dev/null"
        " | while read pid; do echo $pid $(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f20); done"
    )
    return dict(line.split() for line in found.splitlines())
