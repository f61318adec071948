"""Looks across jobs: when several turn suspect together, their hosts share a fault, and a kill helps none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast.hang.pipeline.samples import State
from holdfast.hang.tuning import Tuning


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
    """A job on the ladder: since when, and its workers' last vectors."""

    job: str
    suspected_s: float
    workers: Sequence[WorkerFeatures]


def common_cause(suspects: Sequence[SuspectJob], tuning: Tuning | None = None) -> CommonCause | None:
    """The cause that suspect jobs share, or None: ranks in state D on one mount from two hosts, or two jobs in
    3 min.
    """
    limits = tuning or Tuning()
    mount, hosts = _shared_mount(suspects)
    if mount:
        jobs = tuple(sorted({s.job for s in suspects if mount in _waits(s.workers)}))
        where = f"{len(hosts)} hosts wait for storage at {mount}"
        words = f"{where}: nothing is killed while the file server may be at fault"
        return CommonCause(jobs, mount, words, tuple(sorted(hosts)))
    together = _within(suspects, limits.common_cause_s)
    if len(together) < 2:
        return None
    words = f"{len(together)} jobs turned suspect within {limits.common_cause_s / 60:.0f} min"
    patience = f"for {limits.common_cause_hold_s / 60:.0f} min"
    why = f"nothing is killed {patience}, since a switch or a file server may be at fault"
    return CommonCause(together, "", f"{words}: {why}")


def _waits(workers: Sequence[WorkerFeatures]) -> Mapping[str, frozenset[str]]:
    """Mounts that ranks in uninterruptible sleep wait for, with their hosts."""
    found: dict[str, frozenset[str]] = {}
    for worker in workers:
        for rank in worker.ranks:
            if rank.state is State.DISK and rank.mount:
                found[rank.mount] = found.get(rank.mount, frozenset()) | {worker.host}
    return found


def _shared_mount(suspects: Sequence[SuspectJob]) -> tuple[str, frozenset[str]]:
    hosts: dict[str, frozenset[str]] = {}
    for suspect in suspects:
        for mount, where in _waits(suspect.workers).items():
            hosts[mount] = hosts.get(mount, frozenset()) | where
    shared = {mount: where for mount, where in hosts.items() if len(where) > 1}
    mount = max(shared, key=lambda m: (len(shared[m]), m), default="")
    return mount, shared.get(mount, frozenset())


def _within(suspects: Sequence[SuspectJob], window_s: float) -> tuple[str, ...]:
    """The largest set of jobs that turned suspect within the window."""
    best: tuple[str, ...] = ()
    for first in suspects:
        near = {s.job for s in suspects if 0 <= s.suspected_s - first.suspected_s <= window_s}
        if len(near) > len(best):
            best = tuple(sorted(near))
    return best
