"""Finds ports on this machine that are free and stay so: no outgoing connection and no other start gets them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from holdfast.dev import plan
from holdfast.dev.plan import Cluster

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Reserved(contextlib.ExitStack):
    """Ports that were found free and that no other start takes until the block ends; the daemons can listen on them.

    A port is bound for us alone, which is atomic. Then others may share it as long as we don't listen: so a daemon can,
    and the next one to bind it for itself alone can't.
    """

    def take(self, ports: Sequence[int]) -> bool:
        """Whether all are free; the last one, by which others know the block, is reserved then."""
        with contextlib.ExitStack() as bound:
            for port in ports:
                held = bound.enter_context(socket.socket())
                try:
                    held.bind(("", port))
                except OSError:
                    return False
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.enter_context(socket.socket(fileno=held.detach()))
        return True


def choose(
    known: Cluster | None, reserved: Reserved, *, hosts: int | None, gpus: int | None, port: int | None
) -> Cluster:
    """The cluster that is wanted (see ``plan.grow``); new ports are free at present and become ``reserved``."""
    ephemeral = ephemeral_range()
    # In random order, so that two starts at the same time seldom try the same ones.
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
        free_ports=(p for p in ports if reserved.take([p])),
        free_blocks=(b for b in blocks if port not in b and reserved.take(b)),
    )


def ephemeral_range() -> range:
    """The ports that the kernel gives to outgoing connections."""
    try:
        first, last = _EPHEMERAL.read_text().split()
    except OSError:
        return range(32768, 61000)
    return range(int(first), int(last) + 1)
