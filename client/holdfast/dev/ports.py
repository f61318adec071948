"""Finds ports on this machine that are free and stay so: the kernel gives them to no outgoing connection."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import SystemRandom

from holdfast.dev import plan
from holdfast.dev.plan import Cluster

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def choose(known: Cluster | None, *, hosts: int | None, gpus: int | None, port: int | None) -> Cluster:
    """The cluster that is wanted (see ``plan.grow``), new ports being free at present on this machine."""
    ephemeral = ephemeral_range()
    # In random order, lest two clusters that are made at the same time choose alike.
    shuffled = SystemRandom()
    ports = plan.controller_ports(ephemeral)
    taken = [host.ports for host in known.hosts] if known else []
    blocks = plan.blocks(ephemeral, taken)
    shuffled.shuffle(ports)
    shuffled.shuffle(blocks)
    return plan.grow(
        known,
        hosts=hosts,
        gpus=gpus,
        port=port,
        free_ports=free(ports),
        free_blocks=(b for b in blocks if _all_free(b) and port not in b),
    )


def free(ports: Iterable[int]) -> Iterator[int]:
    """Yield the ports that nothing on this machine has at present."""
    return (port for port in ports if _all_free([port]))


def ephemeral_range() -> range:
    """The ports that the kernel gives to outgoing connections."""
    try:
        first, last = _EPHEMERAL.read_text().split()
    except OSError:
        return range(32768, 61000)
    return range(int(first), int(last) + 1)


def _all_free(ports: Sequence[int]) -> bool:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
