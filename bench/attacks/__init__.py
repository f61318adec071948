"""Attacks on a cluster that runs, and what a second user feels meanwhile: `python -m bench.attacks --help`.

Each attack is a coroutine that attacks for as long as it is let, registered by ``attack`` in a module of this folder:

    @attack("a filter of 100,000 blanks", role="viewer")
    async def blank_filter(site: Site) -> None:
        jobs = site.jobs()
        while True:
            await site.refused(jobs.ListJobs(job_pb2.ListJobsRequest(filter="x=" + " " * 100_000)))

``MODULES`` names the modules. An attack runs in a process of its own, on a core that the cluster doesn't use: what the
second user feels comes from the controller and not from a machine with too few cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc
import grpc.aio

from holdfast import settings
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, tls
from holdfast._security.tls import TlsFiles
from holdfast.v1 import agent_pb2_grpc, host_pb2_grpc, job_pb2_grpc

MODULES = ("bench.attacks.calls", "bench.attacks.floods", "bench.attacks.callers", "bench.attacks.outsiders")
CALL_S = 60.0
CLUSTER = "dev"


@dataclass(frozen=True)
class Site:
    """A dev cluster as an attacker sees it, who has one certificate: that of ``party``, such as ``user/mallory``."""

    directory: Path
    party: str

    @property
    def controller(self) -> str:
        """HOST:PORT of gRPC."""
        return settings.load(self.directory / "client.toml").controller

    def files(self, party: str = "") -> TlsFiles:
        """Certificate and key of a party, issued by the cluster's CA when they are first asked for."""
        kind, _, name = (party or self.party).partition("/")
        folder = self.directory / "pki"
        stem = f"bench-{kind}-{name}"
        found = TlsFiles(folder / "ca.pem", folder / f"{stem}.pem", folder / f"{stem}.key")
        return (
            found if found.cert.exists() else pki.issue(folder, Identity(CLUSTER, Kind(kind), name), folder, stem)
        )

    def channel(self, party: str = "") -> grpc.aio.Channel:
        """A connection of its own."""
        options = [
            ("grpc.ssl_target_name_override", tls.SERVER_NAME),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        return grpc.aio.secure_channel(self.controller, tls.channel_credentials(self.files(party)), options)

    def jobs(self, party: str = "") -> job_pb2_grpc.JobServiceAsyncStub:
        """``JobService`` over a connection of its own."""
        return cast("job_pb2_grpc.JobServiceAsyncStub", job_pb2_grpc.JobServiceStub(self.channel(party)))

    def hosts(self, party: str = "") -> host_pb2_grpc.HostServiceAsyncStub:
        """``HostService`` likewise."""
        return cast("host_pb2_grpc.HostServiceAsyncStub", host_pb2_grpc.HostServiceStub(self.channel(party)))

    def agents(self, party: str = "") -> agent_pb2_grpc.AgentServiceAsyncStub:
        """``AgentService`` likewise, for attacks by a host."""
        return cast("agent_pb2_grpc.AgentServiceAsyncStub", agent_pb2_grpc.AgentServiceStub(self.channel(party)))

    @staticmethod
    async def refused(call: Awaitable[object]) -> None:
        """Await a call that may be refused."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call


@dataclass(frozen=True)
class Attack:
    """One registered attack."""

    name: str
    title: str
    role: str
    """viewer, user or admin; for a host ``host``."""
    lead_s: float
    """The attack begins so long before the second user looks."""
    run: Callable[[Site], Awaitable[None]]


ATTACKS: dict[str, Attack] = {}


def attack(
    title: str, *, role: str = "user", lead_s: float = 2.0
) -> Callable[[Callable[[Site], Awaitable[None]]], Attack]:
    """Register a coroutine, under its own name, as an attack by a caller with this role."""

    def register(run: Callable[[Site], Awaitable[None]]) -> Attack:
        name = getattr(run, "__name__", title).replace("_", "-")
        ATTACKS[name] = found = Attack(name, title, role, lead_s, run)
        return found

    return register


def load() -> Iterator[Attack]:
    """Every attack of ``MODULES``."""
    import importlib

    for module in MODULES:
        importlib.import_module(module)
    yield from ATTACKS.values()
