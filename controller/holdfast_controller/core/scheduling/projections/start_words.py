"""The start of a waiting job in words: when it is expected, whether the job is given up first, what would start it now.

A run that is short enough starts ahead of its turn on hosts that are free until another's projected start. Up to when
it would have to end is known from the last pass over the queue (``Cluster.too_long``).
"""

from __future__ import annotations

import math

from holdfast_controller.core.model.clock import Now, Wall, minute
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Basis
from holdfast_controller.core.scheduling.absences import Cause
from holdfast_controller.core.scheduling.open_hosts import ends_at, own_words
from holdfast_controller.core.scheduling.projections.projected_start import Start

TYPING_S = 60.0
"""The option says so much less than there is time for: it has to be typed."""
_SOURCES: dict[Basis | Cause, tuple[str, str]] = {
    Basis.DECLARED: ("the declared duration of {}", "declared durations of {}"),
    Basis.LEARNED: ("how long earlier runs of {} took", "how long earlier runs of {} took"),
    Basis.TIMEOUT: ("the timeout of {}", "timeouts of {}"),
    Cause.MAINTENANCE: ("the planned end of maintenance on {}", "planned ends of maintenance on {}"),
    Cause.RESERVATION: ("the end of the reservation of {}", "ends of reservations of {}"),
}
"""The source of an estimate, of one and of several."""
SOON_S = 60.0
"""An expected start that is nearer is given without a time: it would be that of now."""


def expected_start(start: Start, job: Job, now: Now) -> str:
    """Such as "expected to start about 14:20 UTC, from declared durations of 3 jobs"; empty for a start now.

    A timeout says when a job ends at the latest, and so does what rests on one.
    """
    if not start.waits_for or start.at <= now.wall:
        return ""
    if _is_bound(start):
        # The minute before would be no bound.
        at = minute(Wall(math.ceil(start.at / 60) * 60), now)
        last = start.waits_for[-1]
        why = f"when {last.name} runs out of time" if last.at == start.at else f"from {_sources(start)}"
        words = f"expected to start by {at} at the latest, {why}"
    else:
        when = f"about {minute(start.at, now)}" if start.at - now.wall >= SOON_S else "within a minute"
        words = f"expected to start {when}, from {_sources(start)}"
    if job.given_up_at is None or job.given_up_at >= start.at:
        return words
    at = minute(job.given_up_at, now)
    if _is_bound(start):
        return f"{words}; given up at {at} if that comes first (--max-wait)"
    return f"{words}; given up before that, at {at}, unless --max-wait is longer"


def is_given_up_before(start: Start, job: Job) -> bool:
    """Whether a job's longest wait is over before it is expected to start."""
    return job.given_up_at is not None and job.given_up_at < start.at and not _is_bound(start)


def _is_bound(start: Start) -> bool:
    """Whether the last job to end is only known to end by its timeout."""
    return bool(start.waits_for) and start.waits_for[-1].basis is Basis.TIMEOUT


def _sources(start: Start) -> str:
    by_basis: dict[Basis | Cause, list[str]] = {basis: [] for basis in _SOURCES}
    for each in start.waits_for:
        by_basis[each.basis].append(each.name)
    return " and ".join(
        _SOURCES[basis][len(names) > 1].format(names[0] if len(names) == 1 else _so_many(len(names), basis))
        for basis, names in by_basis.items()
        if names
    )


def _so_many(number: int, basis: Basis | Cause) -> str:
    return f"{number} {'jobs' if isinstance(basis, Basis) else 'hosts'}"


def shorter_run(cluster: Cluster, job: Job, now: Now) -> str:
    """Such as "a run that ends by 14:20 UTC would start now: --timeout 35m"; empty where none would.

    For the first of its shape that waits: what it would take is kept from others of that shape.
    """
    end = cluster.too_long.get(own_words(job.gang.shape, cluster.reservations.of(job.whose)))
    if end is None or job.places or job.gang.strategy is Strategy.SPOT or ends_at(cluster, job, now) <= end:
        return ""
    minutes = int((end - now.wall - TYPING_S) // 60)
    return f"a run that ends by {minute(end, now)} would start now: --timeout {minutes}m" if minutes > 0 else ""
