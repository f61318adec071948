"""Looks across jobs: when those that share something hang together, that is likely at fault, and a kill helps none.

What jobs share is storage that their ranks wait for, a host, or a label that says where hosts are (a rack, a
switch). Jobs that use the same thing and go on speak against it. Two jobs that share nothing known are a
coincidence; at least three, and no fewer than go on elsewhere, are a fault of the whole cluster: with n jobs that
hang once a day each, two meet within 3 min by chance on n² / 480 days, but half of all of them never do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.pipeline.samples import State
from holdfast.hang.thresholds import Tuning

CLUSTER = ""
"""The name of what all jobs share."""
MOST_NAMED = 32
"""Jobs that a common cause names; more would change no decision."""


@dataclass(frozen=True, slots=True)
class CommonCause:
    """Why nothing is killed now: the jobs, what they share as far as known, and the words for the cluster's
    event.
    """

    jobs: tuple[str, ...]
    mount: str
    sentence: str
    # That wait for the mount.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SuspectJob:
    """A job on the ladder: since when, what it uses, and what its ranks wait for."""

    job: str
    suspected_s: float
    # Hosts by name, and labels of hosts as ``key=value``, that tell where they are.
    uses: frozenset[str] = frozenset()
    # The hosts that wait for it, by mount.
    waits: Mapping[str, frozenset[str]] = field(default_factory=dict)


def mount_waits(workers: Iterable[WorkerFeatures]) -> dict[str, frozenset[str]]:
    """Mounts that ranks in uninterruptible sleep wait for, with their hosts."""
    found: dict[str, frozenset[str]] = {}
    for worker in workers:
        for rank in worker.ranks:
            if rank.state is State.DISK and rank.mount:
                found[rank.mount] = found.get(rank.mount, frozenset()) | {worker.host}
    return found


def common_cause(
    mine: SuspectJob,
    others: Iterable[SuspectJob],
    going_on: Callable[[str], int],
    tuning: Tuning | None = None,
) -> CommonCause | None:
    """The cause that a job's suspicion shares with ``others``, or among its hosts; None if there is none.

    ``going_on`` counts jobs that use a thing and are seen to move; of ``CLUSTER``: of all jobs.
    """
    limits = tuning or Tuning()
    others = list(others)
    if (stuck := _shared_mount(mine, others)) is not None:
        return stuck
    near = [other for other in others if abs(other.suspected_s - mine.suspected_s) <= limits.common_cause_s]
    shared = _shared_thing(mine, near, going_on)
    if shared is not None:
        jobs = [other for other in near if shared in other.uses]
        where = f"on hosts with {shared}" if "=" in shared else f"on {shared}"
        return _together(mine, jobs, f"{len(jobs) + 1} jobs {where} {_within(limits)}", shared, limits)
    count = len(near) + 1
    if count < limits.common_cause_cluster_jobs or count < (moving := going_on(CLUSTER)):
        return None
    words = f"{count} jobs {_within(limits)} while {moving or 'none'} {'goes' if moving == 1 else 'go'} on"
    return _together(mine, near, words, "a central switch or a file server", limits)


def _shared_mount(mine: SuspectJob, others: list[SuspectJob]) -> CommonCause | None:
    if not mine.waits:
        return None
    hosts = dict(mine.waits)
    for other in others:
        for mount in other.waits.keys() & hosts.keys():
            hosts[mount] |= other.waits[mount]
    mount = max(hosts, key=lambda m: (len(hosts[m]), m), default="")
    if not mount or len(hosts[mount]) < 2:
        return None
    words = f"{len(hosts[mount])} hosts wait for storage at {mount}"
    jobs = _names(mine, [other for other in others if mount in other.waits])
    why = f"{words}: nothing is killed while the file server may be at fault"
    return CommonCause(jobs, mount, why, tuple(sorted(hosts[mount])))


def _shared_thing(mine: SuspectJob, near: list[SuspectJob], going_on: Callable[[str], int]) -> str | None:
    """The thing that most suspects share and no more jobs use and go on; a host before a label of as many jobs."""
    users: dict[str, int] = {}
    for other in near:
        for thing in mine.uses & other.uses:
            users[thing] = users.get(thing, 1) + 1
    for thing in sorted(users, key=lambda thing: (-users[thing], "=" in thing, thing)):
        if users[thing] >= going_on(thing):
            return thing
    return None


def _within(limits: Tuning) -> str:
    return f"turned suspect within {limits.common_cause_s / 60:.0f} min"


def _together(mine: SuspectJob, others: list[SuspectJob], what: str, fault: str, limits: Tuning) -> CommonCause:
    patience = f"for {limits.common_cause_hold_s / 60:.0f} min"
    sentence = f"{what}: nothing is killed {patience}, since {fault} may be at fault"
    return CommonCause(_names(mine, others), "", sentence)


def _names(mine: SuspectJob, others: list[SuspectJob]) -> tuple[str, ...]:
    return tuple(sorted({mine.job, *(other.job for other in others[: MOST_NAMED - 1])}))
