"""``holdfast dev status``: what of a dev cluster runs. Starts nothing and changes nothing."""

from __future__ import annotations

from dataclasses import asdict, field
from pathlib import Path
from typing import Any

import grpc

from holdfast._base.dataclass import dataclass
from holdfast.dev import daemons, readiness
from holdfast.dev import layout as files
from holdfast.dev.layout import Layout
from holdfast.dev.plan import CONTROLLER, Cluster
from holdfast.dev.processes import Process
from holdfast.v1 import cluster_pb2, cluster_pb2_grpc

_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


@dataclass(frozen=True, slots=True)
class Daemon:
    """The controller, or the agent of a host. ``problem`` says in words why it is not ready; empty if it is."""

    name: str
    pid: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class Status:
    """A dev cluster as it is; ``daemons`` is empty where there is none in ``directory``."""

    directory: str
    controller: str = ""
    """Its address."""
    config: str = ""
    """Settings for clients."""
    daemons: tuple[Daemon, ...] = ()
    jobs: dict[str, int] = field(default_factory=dict)
    """Jobs that have not ended, by state; empty too where the controller does not answer."""

    @property
    def running(self) -> bool:
        """Whether every daemon runs and is ready."""
        return bool(self.daemons) and not any(each.problem for each in self.daemons)

    def view(self) -> dict[str, Any]:
        """The status as plain data."""
        return {"running": self.running, **asdict(self), "daemons": [asdict(each) for each in self.daemons]}


def status(directory: Path) -> Status:
    """The state of the dev cluster in ``directory``. Raises ``ConfigError`` where its record can't be read."""
    layout = Layout(directory.expanduser().resolve())
    cluster = files.load(layout)
    if cluster is None:
        return Status(str(layout.directory))
    running = daemons.running(layout, cluster)
    problems, jobs = _asked(layout, cluster, running)
    found = tuple(
        Daemon(name, running[name].pid if name in running else None, problems.get(name, ""))
        for name in cluster.daemons
    )
    return Status(str(layout.directory), f"127.0.0.1:{cluster.port}", str(layout.client_config), found, jobs)


def _asked(layout: Layout, cluster: Cluster, running: dict[str, Process]) -> tuple[dict[str, str], dict[str, int]]:
    """Each daemon that is not ready and why, and the number of jobs that have not ended, by state."""
    dead = {name: "not running" for name in cluster.daemons if name not in running}
    if CONTROLLER in dead:
        return dead, {}
    with readiness.link(cluster.port, layout.user()) as channel:
        if missing := readiness.controller(channel):
            return {CONTROLLER: missing} | dead, {}
        hosts = readiness.hosts(channel, {host.name: 0.0 for host in cluster.hosts})
        return hosts | dead, _jobs(channel)


def _jobs(channel: grpc.Channel) -> dict[str, int]:
    stub = cluster_pb2_grpc.ClusterServiceStub(channel)
    try:
        reply = stub.GetStatus(cluster_pb2.GetStatusRequest(), timeout=readiness.CALL_S)
    except grpc.RpcError:
        return {}  # gone since it was asked a moment ago
    return {state: count for state, count in sorted(reply.jobs.items()) if state not in _ENDED and count}
