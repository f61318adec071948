"""Projection: when and where a waiting job will fit, by the estimated ends of what runs now.

The estimates are those of ``model.run_times``; what is being stopped is as good as gone, and SPOT jobs are gone for a
job that they give way to. The time that starting and stopping take is not in it. What no estimate says anything of,
such as a host that is given back by hand, never comes free in a projection.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast_controller.core.model.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.clock import Now, Wall, minute
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.host import Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Basis, Estimate, ran_so_far
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.preempt import goes_before, loan_is_due


@dataclass(frozen=True, slots=True)
class End:
    """When a job's hosts are expected to be free, and the estimate that says so; None where none is needed."""

    at: float
    job_id: str
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A waiting job's projected start, its places then, and how many jobs have to end for it, by kind of estimate."""

    at: Wall
    places: tuple[Place, ...]
    waits_for: tuple[tuple[Basis, int], ...] = ()


def ends_of(cluster: Cluster, now: Now, loan_s: float, waiting: Job) -> list[End]:
    """The expected ends of all jobs that hold something, for the job ``waiting``: the earliest first."""
    held = (cluster.jobs[name] for name in cluster.holdings.gpus_by_job)
    found = (_end_of(cluster, job, now, loan_s, waiting) for job in held)
    return sorted((end for end in found if math.isfinite(end.at)), key=lambda end: (end.at, end.job_id))


def _end_of(cluster: Cluster, job: Job, now: Now, loan_s: float, waiting: Job) -> End:
    if job.terminal or job.stopping:
        never = job.terminal or job.reserved or cluster.runtime_of(job.id).stuck
        return End(math.inf if never else now.wall, job.id)
    warned = job.leave.due if job.leave is not None else job.pause_due
    if warned is not None:
        return End(max(warned, now.wall), job.id)
    ran_s = ran_so_far(job, now.wall)
    estimate = cluster.run_times.estimate(job, ran_s)
    at = now.wall + max(estimate.seconds - ran_s, 0.0)
    back = _given_back_at(cluster, job, now, loan_s, waiting)
    return End(at, job.id, estimate) if at <= back else End(back, job.id)


def _given_back_at(cluster: Cluster, job: Job, now: Now, loan_s: float, waiting: Job) -> float:
    """When a SPOT job gives way to ``waiting`` at the latest, if that then fits."""
    if job.gang.strategy is not Strategy.SPOT or job.unreconciled is not None or not goes_before(waiting, job):
        return math.inf
    if waiting.gang.strategy is Strategy.SPOT and not loan_is_due(cluster, job):
        return math.inf if job.loan is None else max(job.loan.since + loan_s, now.wall)
    claims_s = waiting.no_claim_before or now.wall
    return now.wall if cluster.elapsed_loans.get(waiting.id) == waiting.attempt else max(claims_s, now.wall)


@dataclass(frozen=True, slots=True)
class _Booked:
    """A place that a worker of ``gang`` will hold, or does since a moment ago, until then."""

    until: float
    gang: Gang
    pool: int
    place: Place
    basis: Basis | None


@dataclass
class Outlook:
    """The hosts as they will be once jobs have ended, and others, which are ``booked``, have taken their places."""

    hosts: list[Host]
    ends: list[End]
    """The earliest first."""
    looked_at: int = 0
    """Hosts that were looked at so far, each once for a plan."""
    _held: dict[str, dict[str, str]] = field(default_factory=dict)
    """By host: the job of each share that was held there at the beginning. Later ones count if they are booked."""
    _on: dict[str, set[str]] = field(default_factory=dict)
    """By host: these jobs."""
    _known: dict[tuple[str, frozenset[str]], HostCapacity] = field(default_factory=dict)
    """By host and by jobs that are gone from it."""
    _booked: dict[str, list[_Booked]] = field(default_factory=dict)
    """By host."""

    def __post_init__(self) -> None:
        for host in self.hosts:
            self._held[host.name] = {key: key.rpartition("/")[0] for key in host.allocations}
            self._on[host.name] = set(self._held[host.name].values())

    def earliest(self, job: Job, since: float) -> Start | None:
        """The first time from ``since`` on at which a job fits; None where it doesn't, whatever ends."""
        here = set().union(*self._on.values())
        later = {end.at for end in self.ends if end.job_id in here} | self._booked_until()
        turns = [since, *sorted(at for at in later if at > since)]
        low = high = 0
        while self.plan(job, turns[high]) is None:
            low = high + 1
            if low == len(turns):
                return None
            high = min(2 * high + 1, len(turns) - 1)
        while low < high:
            middle = (low + high) // 2
            if self.plan(job, turns[middle]) is not None:
                high = middle
            else:
                low = middle + 1
        at = turns[high]
        found = self.plan(job, at)
        assert found is not None
        return Start(Wall(at), found.places, self._needed(found, since, at))

    def plan(self, job: Job, at: float) -> Plan | None:
        """The placement of a job at that time; None where it doesn't fit."""
        self.looked_at += len(self.hosts)
        gone = frozenset(end.job_id for end in self.ends[: bisect.bisect_right(self.ends, at, key=lambda e: e.at)])
        found = plan_job(job, self.hosts, lambda host, own: self._capacity(host, gone, own, at))
        return found if isinstance(found, Plan) else None

    def book(self, gang: Gang, places: tuple[Place, ...], until: float, basis: Basis | None = None) -> None:
        """A gang holds these places until then, by an estimate of that kind."""
        for member, place in zip(gang.members, places, strict=True):
            self._booked.setdefault(place.host, []).append(_Booked(until, gang, member.pool, place, basis))

    def cancel(self, gang: Gang, places: tuple[Place, ...]) -> None:
        """Take back the last booking of these places."""
        for place in places:
            self._booked[place.host] = [
                booked
                for booked in self._booked[place.host]
                if booked.gang is not gang or booked.place is not place
            ]

    def _booked_until(self) -> set[float]:
        return {booked.until for on_host in self._booked.values() for booked in on_host}

    def _capacity(self, host: Host, gone: frozenset[str], own: frozenset[str], at: float) -> HostCapacity:
        left = self._without(host, gone & self._on[host.name], own)
        for booked in self._booked.get(host.name, ()):
            if booked.until > at:
                pool = booked.gang.pools[booked.pool]
                left.gpus = [gpu for gpu in left.gpus if gpu[0] not in booked.place.gpus]
                left.cpus -= pool.cpus
                left.memory_mb -= pool.memory_mb
                left.slots -= 1
        return left

    def _without(self, host: Host, here: frozenset[str], own: frozenset[str]) -> HostCapacity:
        if own or (host.name, here) not in self._known:
            held = self._held[host.name]
            gone = {key for key in host.allocations if key in own or held.get(key) is None or held[key] in here}
            found = capacity_of(host, frozenset(gone))
            if own:
                return found
            self._known[host.name, here] = found
        return self._known[host.name, here].copy()

    def _needed(self, found: Plan, since: float, at: float) -> tuple[tuple[Basis, int], ...]:
        """How many jobs have to end on the hosts of a plan between the two times, by the kind of their estimate."""
        names = {place.host for place in found.places}
        on = set().union(*(self._on[name] for name in names))
        needed = Counter(
            end.estimate.basis
            for end in self.ends
            if since < end.at <= at and end.job_id in on and end.estimate is not None
        )
        booked = (booked for name in names for booked in self._booked.get(name, ()) if since < booked.until <= at)
        by_gang = {id(booked.gang): booked.basis for booked in booked if booked.basis is not None}
        needed.update(by_gang.values())
        return tuple((basis, needed[basis]) for basis in Basis if needed[basis])


MOST_FORECAST = 50
"""Waiting jobs whose start is projected for a view."""
_PLANS = 1_000
"""Hosts that are looked at for them at most, each once for a job."""


def forecast(
    cluster: Cluster, queue: Iterable[Job], hosts: list[Host], now: Now, loan_s: float
) -> dict[str, Start]:
    """The projected starts of the first jobs of a queue, none of which delays one ahead of it."""
    first = list(itertools.islice(queue, min(MOST_FORECAST, max(_PLANS // max(len(hosts), 1), 1))))
    found: dict[str, Start] = {}
    if not first:
        return found
    outlook = Outlook(hosts, ends_of(cluster, now, loan_s, first[0]))
    for job in first:
        start = outlook.earliest(job, now.wall)
        if start is not None:
            found[job.id] = start
            estimate = cluster.run_times.estimate(job, job.ran_s)
            until = start.at + max(estimate.seconds - job.ran_s, 0.0)
            outlook.book(job.gang, start.places, until, estimate.basis)
    return found


_OF = {Basis.DECLARED: "declared durations", Basis.LEARNED: "past runs like those", Basis.TIMEOUT: "timeouts"}


def start_in_words(start: Start, now: Now) -> str:
    """Such as "expected to start about 14:20 UTC, from declared durations of 3 jobs"; empty for a start now.

    A timeout says when a job ends at the latest, and so does what rests on one.
    """
    if not start.waits_for:
        return ""
    if any(basis is Basis.TIMEOUT for basis, _ in start.waits_for):
        when = f"by {minute(start.at, now)} at the latest"
    else:
        when = f"about {minute(start.at, now)}"
    parts = [f"{_OF[basis]} of {count} job{'s' if count > 1 else ''}" for basis, count in start.waits_for]
    return f"expected to start {when}, from {' and '.join(parts)}"
