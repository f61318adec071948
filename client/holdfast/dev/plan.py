"""Decides what a dev cluster consists of. Pure: which ports are free is asked through arguments.

Theory of operation: the first start chooses ports and writes them down; every later start reads them back and
may only add hosts. So ports and identities never change under a client's feet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from holdfast._base.dataclass import dataclass
from holdfast.errors import ConfigError

T = TypeVar("T")

CONTROLLER = "controller"
PORTS_PER_HOST = 200
CONTROLLER_PORTS = range(7000, 10000)
WORKER_PORTS = range(10000, 65536)


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its ports for workers, and how many GPUs are simulated there (0: the machine's own)."""

    name: str
    ports: range
    gpus: int

    @property
    def worker_ports(self) -> range:
        """Ports for workers: all of the host's but the last one."""
        return self.ports[:-1]

    @property
    def metrics_port(self) -> int:
        """Local address of the agent's metrics."""
        return self.ports[-1]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Parts of a dev cluster, running or not."""

    port: int
    hosts: tuple[Host, ...]
    http_port: int = 0
    """Where the controller serves JSON over HTTP; 0 in a cluster that is older than that."""
    metrics_port: int = 0
    """Where the controller tells this machine its metrics; 0 in a cluster that is older than that."""
    web_port: int = 0
    """Where the controller serves the web page; 0 in a cluster that is older than that."""

    @property
    def daemons(self) -> tuple[str, ...]:
        """Names of all daemons: the controller's, then each host's for its agent."""
        return (CONTROLLER, *(host.name for host in self.hosts))


def grow(
    known: Cluster | None,
    *,
    hosts: int | None,
    gpus: int | None,
    port: int | None,
    free_ports: Iterator[int],
    free_blocks: Iterator[range],
) -> Cluster:
    """The cluster that is wanted: the known one, or a first one, with hosts added until there are ``hosts``.

    Hosts are never taken away, so a smaller number keeps them all. ``gpus`` counts for new hosts only; unset,
    they get what the newest host has. Raises ``ConfigError`` for numbers that make no sense, for a port other
    than the known one, and when no free ports are left.
    """
    _check(hosts, gpus, port)
    if known is None:
        first = port if port is not None else _next(free_ports)
        others = (free for free in free_ports if free != first)
        known = Cluster(first, (), _next(others), _next(others), _next(others))
        hosts = hosts or 1
    elif port not in (None, known.port):
        raise ConfigError(
            f"--port {port}: this cluster has listened on {known.port} since its first start.",
            fix="Leave --port out, or use another --dir.",
        )
    if gpus is None:
        gpus = known.hosts[-1].gpus if known.hosts else 0
    count = len(known.hosts)
    added = tuple(Host(f"host-{i}", _next(free_blocks), gpus) for i in range(count, hosts or 0))
    return replace(known, hosts=known.hosts + added)


def blocks(ephemeral: range, taken: Collection[range]) -> list[range]:
    """Every block of ports that a new host could have, none of them among those ``taken``.

    All lie outside the ``ephemeral`` range, whose ports the kernel hands to any outgoing connection, unless
    that range leaves no room at all.
    """
    starts = range(WORKER_PORTS.start, WORKER_PORTS.stop - PORTS_PER_HOST + 1, PORTS_PER_HOST)
    every = [range(first, first + PORTS_PER_HOST) for first in starts]
    untaken = [block for block in every if not any(_overlap(block, other) for other in taken)]
    return [block for block in untaken if not _overlap(block, ephemeral)] or untaken


def controller_ports(ephemeral: range) -> list[int]:
    """Every port that a new controller could have; outside the ``ephemeral`` range where there is room."""
    return [p for p in CONTROLLER_PORTS if p not in ephemeral] or list(CONTROLLER_PORTS)


def dead(cluster: Cluster, running: Collection[str]) -> tuple[bool, tuple[Host, ...]]:
    """(whether the controller has to be started, the hosts whose agents have to be).

    ``running`` holds names as in ``Cluster.daemons``.
    """
    return CONTROLLER not in running, tuple(h for h in cluster.hosts if h.name not in running)


def _check(hosts: int | None, gpus: int | None, port: int | None) -> None:
    if hosts is not None and hosts < 1:
        raise ConfigError(f"--hosts {hosts}: a cluster has at least one host.")
    if gpus is not None and gpus < 0:
        raise ConfigError(f"--gpus {gpus}: a host can't have fewer than none.")
    if port is not None and not 0 < port < 65536:
        raise ConfigError(f"--port {port}: ports go from 1 to 65535.")


def _next(free: Iterator[T]) -> T:
    for found in free:
        return found
    raise ConfigError(
        "This machine has no more free ports for a dev cluster.", fix="Ask for fewer hosts, or stop other clusters."
    )


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop
