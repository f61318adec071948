"""A cluster whose controller and hosts have network namespaces of their own; see ``tests.e2e.cli_cluster``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.e2e.cli_cluster import DevCluster, until
from tests.faults import proxy
from tests.faults.network import Network, joined

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast.client import Client
from holdfast.dev import processes
from holdfast.v1 import host_pb2
from holdfast_agent.shell import config
from holdfast_agent.shell.cgroups.cgroups import find

PORT = 7000
"""Of the controller, in a namespace where nobody else is."""


@dataclass
class Apart:
    """The cluster, its network and its daemons by name."""

    cluster: DevCluster
    network: Network
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def dir(self) -> Path:
        return self.cluster.dir

    def start(self, name: str) -> None:
        """The controller, or the agent of a host."""
        what = "holdfast_controller" if name == "controller" else "holdfast_agent"
        command = [sys.executable, "-m", what, "--config", str(self.dir / f"{name}.toml")]
        with (self.dir / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                self.network.inside(name, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env
            )

    @property
    def env(self) -> dict[str, str]:
        return {name: value for name, value in self.cluster.env.items() if name != "HOLDFAST_CONFIG"}

    def states(self) -> dict[str, str]:
        """Of every host that is known."""
        return {
            host.name: host_pb2.HostState.Name(host.state).removeprefix("HOST_STATE_")
            for host in self.cluster.ask(Client.list_hosts)
        }

    def reached(self, **wanted: str) -> None:
        """Wait until hosts are in the states that are named, such as ``h0="LOST"``."""
        until(lambda: wanted.items() <= self.states().items(), 90, f"for {wanted}")

    def show_logs(self) -> None:
        """Print the end of every daemon's log; pytest shows it where a test fails."""
        for log in sorted(self.dir.glob("*.log")):
            print(f"--- {log}", *log.read_text(errors="replace").splitlines()[-40:], sep="\n")


def _write(path: Path, values: Mapping[str, Any]) -> None:
    tables = {key: value for key, value in values.items() if isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if key not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines) + "\n")


def _settle(directory: Path, network: Network, labels: Mapping[str, Mapping[str, str]], **settings: object) -> None:
    """Certificates and settings of all."""
    directory.mkdir(mode=0o700)
    pki.create_ca("apart", directory)
    own = {"ca": "ca.pem", "cert": "controller.pem", "key": "controller.key"}
    pki.issue(directory, Identity("apart", Kind.CONTROLLER, "c"), directory, "controller", server=True)
    pki.issue(directory, Identity("apart", Kind.USER, "admin"), directory, "user")
    endpoint = f"{network.address('controller')}:{PORT}"
    values: dict[str, object] = {
        "listen": endpoint,
        "state_dir": "controller",
        "cluster": "apart",
        "admins": ["admin"],
    }
    values |= {**own, **settings}
    _write(directory / "controller.toml", values)
    for host, said in labels.items():
        pki.issue(directory, Identity("apart", Kind.HOST, host), directory, host)
        values = {
            "controller": endpoint,
            "name": host,
            "state_dir": f"{host}/state",
            "log_dir": f"{host}/logs",
            "ca": "ca.pem",
            "cert": f"{host}.pem",
            "key": f"{host}.key",
            "address": network.address(host),
            "simulated_gpus": 2,
            "allow_root_workers": True,
            "labels": dict(said),
        }
        _write(directory / f"{host}.toml", values)


@contextlib.contextmanager
def started(directory: Path, labels: Mapping[str, Mapping[str, str]], **settings: object) -> Iterator[Apart]:
    """A cluster of the hosts in ``labels``, two simulated GPUs each; stopped at the end, and proven gone.

    ``settings`` are more keys of ``controller.toml``.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    cluster = DevCluster(directory, env | {"HOLDFAST_CONFIG": str(directory / "client.toml"), "NO_COLOR": "1"})
    with joined(["controller", *labels]) as network, contextlib.ExitStack() as stack:
        made = Apart(cluster, network)
        _settle(directory, network, labels, **settings)
        door = stack.enter_context(_door(network))
        user = {"controller": f"127.0.0.1:{door}", "ca": "ca.pem", "cert": "user.pem", "key": "user.key"}
        _write(directory / "client.toml", user)
        try:
            for name in ("controller", *labels):
                made.start(name)
            until(
                lambda: "controller.ready" in (directory / "controller.log").read_text(), 60, "for the controller"
            )
            made.reached(**dict.fromkeys(labels, "READY"))
            yield made
        finally:
            made.show_logs()
            stop(made.daemons, cluster, made.daemons.keys() - {"controller"})
    assert cluster.left() == []


@contextlib.contextmanager
def _door(network: Network) -> Iterator[int]:
    """A port on this machine's loopback that leads to the controller."""
    target = f"{network.address('controller')}:{PORT}"
    command = [sys.executable, proxy.__file__, network.namespace("controller"), target]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        out: IO[str] | None = process.stdout
        assert out is not None
        try:
            yield int(out.readline())
        finally:
            process.kill()


def stop(daemons: Mapping[str, subprocess.Popen[bytes]], cluster: DevCluster, hosts: Iterable[str]) -> None:
    """Stop daemons, those that a signal has stopped too, and kill what they leave; ``hosts`` keep no cgroup."""
    for daemon in daemons.values():
        for what in (signal.SIGCONT, signal.SIGTERM):
            daemon.send_signal(what)
    for daemon in daemons.values():
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(30)

    def empty() -> bool:
        for line in cluster.left():
            found = processes.stat(int(line.partition(":")[0]))
            if found is not None:
                processes.send(found.process, signal.SIGKILL)
        return not cluster.left()

    until(empty, 30, "for every process to be gone")
    for host in hosts:  # one that lost its power, and was not started again, has one still
        find(config.load(cluster.dir / f"{host}.toml")).leave()
