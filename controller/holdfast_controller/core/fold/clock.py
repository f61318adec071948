"""Fold of a leap of the wall clock: what durations are counted from leaps along.

These are the stored moments from which a decision, or a figure, goes on counting: since when a job runs, waits, hangs
or is on loan, its newest recovery, what projects have used, since when a host is drained or silent, and what of the
ledger is open. Deadlines that people have set stay where they are.
"""

from __future__ import annotations

from typing import Any, TypeVar

from holdfast._base.dataclass import replace
from holdfast_controller.core.events.cluster import ClockLeapt
from holdfast_controller.core.goodput.leap import leap_of_host, leap_of_ledger, leap_of_watch
from holdfast_controller.core.goodput.tape import milliseconds
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import GpuFault
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.phase import Held, Leave, Loan, Placed, Queued
from holdfast_controller.core.model.slowness import Slowdown
from holdfast_controller.core.model.underuse import Underuse

_Part = TypeVar("_Part", GpuFault, Queued, Held, Placed, Leave, Loan, Underuse, Slowdown)


def fold_clock(cluster: Cluster, event: ClockLeapt) -> None:
    """Apply ``event`` to the shares, jobs and hosts."""
    by_s, by_ms = event.by_s, milliseconds(Wall(event.by_s))
    for used in cluster.shares.used.values():
        _leap(used, by_s, "as_of")
    cluster.promised = {name: Wall(at + by_s) for name, at in cluster.promised.items()}
    for there in cluster.presence.values():  # hosts' clocks stay: ours is further ahead of them
        for beat, behind_s in enumerate(there.clock_behind_s):
            there.clock_behind_s[beat] = behind_s + by_s
        _leap(there, by_s, "last_seen_wall", "heard_before", "lost_at")
    for name, host in cluster.hosts.items():
        _leap(host, by_s, "silent_since")
        if name in cluster.draining:
            _leap(host, by_s, "drain_since", "cordoned_since")
        for gpu, found in host.condemned.items():
            host.condemned[gpu] = replace(found, faults=tuple(_leapt(each, by_s, "since") for each in found.faults))
        leap_of_host(host, by_ms)
        cluster.host_changed(name)
    for job in cluster.jobs.whole.values():
        if not job.terminal:
            _leap_of_job(job, by_s)
            cluster.dirty_jobs.add(job.id)
        if job.ledger is not None:
            leap_of_ledger(job.ledger, by_ms)
        runtime = cluster.runtime.get(job.id)
        if runtime is not None and runtime.progress is not None:
            leap_of_watch(runtime.progress, by_ms)


def _leap_of_job(job: Job, by_s: float) -> None:
    _leap(job.placement, by_s, "running_since", "since")
    _leap(job.launch, by_s, "primary_done_at")
    match job.phase:
        case Queued() as phase:
            job.phase = _leapt(phase, by_s, "since", "quota_since")
        case Held() as phase:
            job.phase = _leapt(phase, by_s, "since")
        case Placed(leave=leave, loan=loan) as phase:
            leave = _leapt(leave, by_s, "due") if leave is not None else None
            loan = _leapt(loan, by_s, "since") if loan is not None else None
            job.phase = replace(_leapt(phase, by_s, "pause_due"), leave=leave, loan=loan)
        case _:
            pass
    for recovery in job.recoveries[-1:]:
        if recovery.ended_at is None or recovery.attempt == job.attempt:
            _leap(recovery, by_s, "started_at", "failed_at", "stopped_at", "ended_at", "caught_up_at")
    for hang in job.hangs[-1:]:
        if hang.open:
            _leap(hang, by_s, "since", "noticed_at", "diagnosed_at", "judged_at")
    if job.underuse is not None:
        job.underuse = _leapt(job.underuse, by_s, "since", "counted_at")
    if job.slowdown is not None:
        job.slowdown = _leapt(job.slowdown, by_s, "since", "counted_at")


def _leap(of: object, by_s: float, *names: str) -> None:
    for name, moment in _moments(of, by_s, names).items():
        setattr(of, name, moment)


def _leapt(of: _Part, by_s: float, *names: str) -> _Part:
    return replace(of, **_moments(of, by_s, names))


def _moments(of: object, by_s: float, names: tuple[str, ...]) -> dict[str, Any]:
    """The moments that are set, as they are after the leap."""
    found = {name: getattr(of, name) for name in names}
    return {name: at + by_s for name, at in found.items() if at is not None and at != NEVER}
