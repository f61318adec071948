"""Leases of hosts: heartbeats, suspicion, loss. Times in seconds on a monotonic clock.

The figures are the design's: a beat each 5 s, suspect after three missed, a lease of 60 s that the holder
counts from sending and the grantor from receiving, and nothing reassigned before 66 s. After a restart of
the controller, and after it stood still for a heartbeat or longer, every lease starts again. When more than 55 % of
the hosts fall silent at once the fault is likelier ours, so none of them is given up.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import BOOT, Mono
from holdfast_controller.core.model.hosts.host import Liveness, Presence

LATE_S = 1.0
"""A deadline that is noticed so long after its time was missed because the controller stood still."""


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """Times of the lease, and the share of silent hosts above which none is taken as lost."""

    heartbeat_s: float = 5.0
    suspect_s: float = 15.0
    lease_s: float = 60.0
    lost_s: float = 66.0
    mass_share: float = 0.55
    fence_call_s: float = 0.0
    """Silence after which the site's fence command is called; 0 where there is none."""

    @property
    def fence_s(self) -> float:
        """When a host without a controller sends TERM; KILL, a twelfth of that later, comes with the lease's end."""
        return self.lease_s * 12 / 13


def liveness(policy: LeasePolicy, presence: Presence, now: Mono, since: Mono = BOOT) -> Liveness:
    """The liveness of a host by the time since its last message alone. Before ``since`` no silence counts."""
    silent = now - max(presence.last_seen, since)
    if silent >= policy.lost_s:
        return Liveness.LOST
    return Liveness.SUSPECT if silent >= policy.suspect_s else Liveness.READY


def next_change(policy: LeasePolicy, presence: Presence, now: Mono, since: Mono = BOOT) -> Mono | None:
    """When the verdict changes if nothing is heard; None once it is final."""
    heard = max(presence.last_seen, since)
    bounds = policy.suspect_s, policy.fence_call_s or policy.lost_s, policy.lost_s
    return min((Mono(heard + bound) for bound in bounds if heard + bound > now), default=None)


def brake(policy: LeasePolicy, presences: Collection[Presence], now: Mono, since: Mono = BOOT) -> bool:
    """Whether so many hosts are silent at once that the cause is common and none may be given up.

    A single host is no crowd: the brake needs two at least.
    """
    silent = sum(1 for p in presences if liveness(policy, p, now, since) is not Liveness.READY)
    return silent >= 2 and silent > policy.mass_share * len(presences)
