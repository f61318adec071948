"""Whether the names under which a worker's peers are reached mean anything on this host."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable

import anyio
import anyio.to_thread

from holdfast._session.assignment import Rendezvous

BOUND_S, PER_NAME_S = 1.0, 0.005
GOOD_FOR_S = 300.0
"""A name that has resolved is not asked for again for so long."""
THREADS = 4
"""A resolver that hangs keeps its thread."""


class Peers:
    """Knows the names that have resolved of late."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self._good: dict[str, float] = {}
        self._threads = anyio.CapacityLimiter(THREADS)

    def unproven(self, rendezvous: Rendezvous | None) -> list[str]:
        """Names of which nothing is known; addresses in figures need no proof."""
        if rendezvous is None or not self.wanted:
            return []
        ports = (address.rpartition(":")[0] for pool in rendezvous.pools for address in pool)
        names = dict.fromkeys(host for host in (rendezvous.master_address, *ports) if not _in_figures(host))
        now = time.monotonic()
        return [name for name in names if now >= self._good.get(name, 0.0)]

    async def problem(self, names: list[str]) -> str:
        """Which name doesn't resolve, in words; empty where all do. Takes a second, or little more for many."""
        bound_s = BOUND_S + PER_NAME_S * len(names)
        with anyio.move_on_after(bound_s):
            failed = await anyio.to_thread.run_sync(
                _first_unknown, names, abandon_on_cancel=True, limiter=self._threads
            )
            if failed:
                return f"the name of a peer does not resolve: {failed}"
            now = time.monotonic()
            self._good = {name: until for name, until in self._good.items() if until > now}
            self._good |= dict.fromkeys(names, now + GOOD_FOR_S)
            return ""
        return f"the names of the peers ({names[0]} and others) did not resolve within {bound_s:.2g} s"


def _first_unknown(names: Iterable[str]) -> str:
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError) as error:
            return f"{name}: {getattr(error, 'strerror', None) or error}"
    return ""


def _in_figures(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
