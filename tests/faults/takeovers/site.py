"""Two controllers, two servers of PostgreSQL and three hosts, each on a machine of its own; daemons are restarted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.cli_cluster import DevCluster, until
from tests.faults.apart import stop
from tests.faults.network import Network, joined
from tests.faults.takeovers import databases
from tests.faults.takeovers.databases import Databases
from tests.support.fake_clock.library import FakeClock

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki

PORT = 7000
CONTROLLERS, SERVERS, HOSTS, USER = ("c1", "c2"), ("d1", "d2"), ("h0", "h1", "h2"), "user"
LEASES = {"heartbeat_interval": 1, "suspect_after": 6, "lease": 20, "lost_after": 36}
RESTARTED_AFTER_S = 0.5
"""As systemd does it, though sooner."""
WITHIN_S = 120.0


@dataclass
class Site:
    """The machines, and the daemons on them by the name of their machine."""

    directory: Path
    network: Network
    databases: Databases
    clocks: Mapping[str, FakeClock]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    """Machines whose daemon isn't started again."""
    _ends: threading.Event = field(default_factory=threading.Event)

    def start(self, name: str) -> None:
        """The daemon of a machine."""
        what = "holdfast_controller" if name in CONTROLLERS else "holdfast_agent"
        command = [sys.executable, "-m", what, "--config", str(self.directory / f"{name}.toml")]
        env = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with (self.directory / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                self.network.inside(name, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env | (self.clocks[name].env if name in self.clocks else {}),
            )

    def keep_up(self) -> None:
        """Start daemons that have ended again, until the site is left."""
        while not self._ends.wait(0.1):
            for name, daemon in list(self.daemons.items()):
                if name not in self.down and daemon.poll() is not None:
                    if self._ends.wait(RESTARTED_AFTER_S):
                        return
                    if name not in self.down:
                        self.start(name)

    def end(self) -> None:
        """Start no daemon any more."""
        self._ends.set()

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal to the daemon of a machine, if it runs."""
        self.daemons[name].send_signal(what)

    def log(self, name: str) -> str:
        """What the daemon of a machine has said since the site began."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def events(self, name: str, *wanted: str) -> list[dict[str, Any]]:
        """Of the lines of its log those with one of these events."""
        lines = (line for line in self.log(name).splitlines() if line.startswith("{"))
        found = (json.loads(line) for line in lines if any(f'"event": "{each}"' in line for each in wanted))
        return [each for each in found if each["event"] in wanted]

    @property
    def leader(self) -> str:
        """The machine of the controller that began the newest term."""
        epochs = {name: [event["epoch"] for event in self.events(name, "controller.ready")] for name in CONTROLLERS}
        return max(CONTROLLERS, key=lambda name: max(epochs[name], default=0))

    @property
    def standby(self) -> str:
        """The machine of the other one."""
        return next(name for name in CONTROLLERS if name != self.leader)

    def in_order(self) -> None:
        """Wait until one controller leads, the other stands by, and each host has its session with the first."""
        until(
            self._is_in_order, WITHIN_S, "for one controller to lead, the other to stand by, and hosts to be there"
        )

    def _is_in_order(self) -> bool:
        leader, standby = self.leader, self.standby
        if any(daemon.poll() is not None for daemon in self.daemons.values()):
            return False
        states = ("controller.ready", "controller.stands_by")
        newest = {name: (self.events(name, *states) or [{"event": ""}])[-1]["event"] for name in CONTROLLERS}
        if (newest[leader], newest[standby]) != states:
            return False
        epoch = self.events(leader, "controller.ready")[-1]["epoch"]
        changes = ("session.opened", "session.closed", "session.failed", "session.unanswered")
        sessions = (self.events(host, *changes) for host in HOSTS)
        return all(
            each and each[-1]["event"] == "session.opened" and each[-1]["epoch"] == epoch for each in sessions
        )

    def unsettled(self) -> str:
        """The end of every log, for a story that went wrong."""
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {log.name}\n" + "\n".join(self.log(log.stem).splitlines()[-25:]) for log in logs)


def _write(path: Path, values: Mapping[str, object]) -> None:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def _settle(directory: Path, network: Network, address: str) -> None:
    """Certificates and settings of all."""
    directory.mkdir(mode=0o700)
    (directory / "bundles").mkdir()
    pki.create_ca("takeovers", directory)
    pki.issue(directory, Identity("takeovers", Kind.USER, "admin"), directory, USER)
    values: dict[str, object]
    both = ",".join(f"{network.address(name)}:{PORT}" for name in CONTROLLERS)
    for name in CONTROLLERS:
        own = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}
        pki.issue(directory, Identity("takeovers", Kind.CONTROLLER, name), directory, name, server=True)
        values = {
            "listen": f"{network.address(name)}:{PORT}",
            "database_url": address,
            "state_dir": name,
            "cluster": "takeovers",
            "admins": ["admin"],
            "bundles.shared": f"file://{directory}/bundles",  # a folder that both mount
        }
        _write(directory / f"{name}.toml", {**values, **own, **LEASES})
    for host in HOSTS:
        pki.issue(directory, Identity("takeovers", Kind.HOST, host), directory, host)
        values = {
            "controller": both,
            "name": host,
            "state_dir": f"{host}/state",
            "log_dir": f"{host}/logs",
            "ca": "ca.pem",
            "cert": f"{host}.pem",
            "key": f"{host}.key",
            "address": network.address(host),
            "simulated_gpus": 2,
            "allow_root_workers": True,
        }
        _write(directory / f"{host}.toml", values)
    client = {"controller": both, "ca": "ca.pem", "cert": f"{USER}.pem", "key": f"{USER}.key"}
    _write(directory / "client.toml", client)


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Site]:
    """Everything is there and in order when this is entered; at its end all is stopped, and proven gone. Needs root."""
    cluster = DevCluster(directory, {})
    with (
        joined([*CONTROLLERS, *SERVERS, *HOSTS, USER]) as network,
        databases.running(network, *SERVERS) as servers,
    ):
        _settle(directory, network, servers.address)
        clocks = {}
        for name in CONTROLLERS:
            (directory / f"{name}.clock").mkdir()
            clocks[name] = FakeClock(directory / f"{name}.clock")
        made = Site(directory, network, servers, clocks)
        keeper = threading.Thread(target=made.keep_up)
        try:
            made.start(CONTROLLERS[0])
            until(lambda: bool(made.events(CONTROLLERS[0], "controller.ready")), WITHIN_S, "for a controller")
            for name in (*CONTROLLERS[1:], *HOSTS):
                made.start(name)
            keeper.start()
            made.in_order()
            yield made
        finally:
            made.end()
            if keeper.ident is not None:
                keeper.join()
            stop(made.daemons, cluster, HOSTS)
    assert cluster.left() == []
