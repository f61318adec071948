"""Which workers of a job exchange leases: each asks a few others, so that all are linked, near and far.

Worker ``i`` of ``n`` asks ``i + 1``, ``i + 2``, ``i + 4`` and so on, modulo ``n``: ten of a thousand. Neighbours by
number are often neighbours in a rack, and lose power or the network together; the far ones then are missed, or say so.
"""

from __future__ import annotations

from holdfast._session.assignment import Assignment
from holdfast_agent.core.worker.actions import Peers


def peers_of(desired: Assignment) -> Peers | None:
    """The workers that this one asks for a lease; None where the job asks for no such lease, or is alone."""
    launch = desired.launch
    if not desired.peer_fence_s or launch is None or launch.rendezvous is None:
        return None
    addresses = [address for pool in launch.rendezvous.pools for address in pool]
    count = len(addresses)
    steps = (1 << power for power in range(count.bit_length()))
    others = sorted({(launch.worker_index + step) % count for step in steps if step < count})
    if not others or not launch.own_port:
        return None
    asked = tuple((index, addresses[index]) for index in others)
    return Peers(launch.worker_index, launch.own_port, launch.rendezvous.secret, asked)
