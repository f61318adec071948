"""Projection: when and where a waiting job will fit, by the estimated ends of what runs now.

The estimates are those of ``model.run_times``; what is being stopped is as good as gone, and revocable jobs are gone
for a job that they give way to. The time that starting and stopping take is not in it. What no estimate says anything
of, such as a host that is given back by hand, never comes free in a projection.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Strategy
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Allocation, Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Basis, Estimate, ran_so_far
from holdfast_controller.core.scheduling.guarantees import guaranteed_loans
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.preempt import at_once, goes_before, loan_is_due, overdue_at


@dataclass(frozen=True, slots=True)
class End:
    """When a job's hosts are expected to be free, and the estimate that says so; None where none is needed."""

    at: float
    job_id: str
    estimate: Estimate | None = None


class Needed(NamedTuple):
    """A job that has to end for another to start, and when that is expected, by which kind of estimate."""

    at: float
    job_id: str
    basis: Basis


@dataclass(frozen=True, slots=True)
class Start:
    """A waiting job's projected start, its places then, and the jobs that have to end for it: the last one last."""

    at: Wall
    places: tuple[Place, ...]
    waits_for: tuple[Needed, ...] = ()


EstimateOf = Callable[[Job, float], Estimate]
"""The estimate of a job that has run for so many seconds."""


def ends_of(
    cluster: Cluster, now: Now, loan_s: float, waiting: Job, estimate_of: EstimateOf | None = None
) -> list[End]:
    """The expected ends of all jobs that hold something, for the job ``waiting``: the earliest first."""
    estimate_of = estimate_of or cluster.run_times.estimate
    held = (cluster.jobs.whole[name] for name in cluster.holdings.gpus_by_job)
    kept = guaranteed_loans(cluster)
    found = (
        _end_of(cluster, job, now, loan_s, waiting, estimate_of, may_be_taken=job.id not in kept) for job in held
    )
    return sorted((end for end in found if math.isfinite(end.at)), key=lambda end: (end.at, end.job_id))


def _end_of(
    cluster: Cluster,
    job: Job,
    now: Now,
    loan_s: float,
    waiting: Job,
    estimate_of: EstimateOf,
    *,
    may_be_taken: bool,
) -> End:
    if job.terminal or job.stopping:
        never = job.terminal or job.reserved or cluster.runtime_of(job.id).stuck
        return End(math.inf if never else now.wall, job.id)
    warned = job.leave.due if job.leave is not None else job.pause_due
    if warned is not None:
        return End(max(warned, now.wall), job.id)
    ran_s = ran_so_far(job, now.wall)
    estimate = estimate_of(job, ran_s)
    at = now.wall + max(estimate.seconds - ran_s, 0.0)
    back = _given_back_at(cluster, job, now, loan_s, waiting) if may_be_taken else math.inf
    return End(at, job.id, estimate) if at <= back else End(back, job.id)


def _given_back_at(cluster: Cluster, job: Job, now: Now, loan_s: float, waiting: Job) -> float:
    """When a revocable job gives way to ``waiting`` at the latest, if that then fits."""
    if not job.revocable or job.unreconciled is not None or not goes_before(waiting, job):
        return math.inf
    if not at_once(cluster, job, waiting, now) and not loan_is_due(cluster, job):
        if job.loan is None:
            return math.inf
        overdue = math.inf if waiting.gang.strategy is Strategy.SPOT else overdue_at(cluster, waiting)
        return max(min(job.loan.since + loan_s, overdue), now.wall)
    claims_s = waiting.no_claim_before or now.wall
    return now.wall if cluster.elapsed_loans.get(waiting.id) == waiting.attempt else max(claims_s, now.wall)


@dataclass(frozen=True, slots=True)
class _Booked:
    """A place that a worker of ``gang`` will hold, or does since a moment ago, until then."""

    until: float
    gang: Gang
    pool: Pool
    place: Place
    job_id: str
    basis: Basis | None


@dataclass
class Outlook:
    """The hosts as they will be once jobs have ended, and others, which are ``booked``, have taken their places."""

    free: FreeCapacity
    hosts: list[Host]
    ends: list[End]
    """The earliest first."""
    looked_at: int = 0
    """Hosts that were looked at so far, each once for a job's bound and once for each plan that it is in."""
    _free: dict[str, HostCapacity] = field(default_factory=dict)
    """By host: what is free there at the beginning."""
    _held: dict[str, list[tuple[float, str, Allocation]]] = field(default_factory=dict)
    """By host: when each share that was held there at the beginning comes free, the earliest first."""
    _known: dict[tuple[str, int], HostCapacity] = field(default_factory=dict)
    """By host and by the number of these that are gone."""
    _booked: dict[str, list[_Booked]] = field(default_factory=dict)
    """By host."""

    def __post_init__(self) -> None:
        until = {end.job_id: end.at for end in self.ends}
        for host in self.hosts:
            self._free[host.name] = self.free.capacity_of(host)
            shares = host.allocations.items()
            held = [(until.get(key.rpartition("/")[0], math.inf), key, share) for key, share in shares]
            self._held[host.name] = sorted(held, key=_first) if len(held) > 1 else held

    def of_one(self, job: Job, since: float) -> Start | None:
        """The same as ``earliest``, for an outlook that is asked for nothing else: it drops hosts that don't matter."""
        found, opens = self._search(job, since)
        if found is not None:
            self.hosts = [host for host in self.hosts if opens[host.name] <= found.at]
        return found

    def earliest(self, job: Job, since: float) -> Start | None:
        """The first time from ``since`` on at which a job fits; None where it doesn't, whatever ends."""
        return self._search(job, since)[0]

    def _search(self, job: Job, since: float) -> tuple[Start | None, dict[str, float]]:
        times = {at for held in self._held.values() for at, *_ in held if since < at < math.inf}
        turns = [since, *sorted(times | {until for until in self._booked_until() if until > since})]
        bound, opens = self._bound(job, since)
        low = high = bisect.bisect_left(turns, bound)
        if high == len(turns):
            return None, opens
        while self.plan(job, turns[high], opens) is None:
            low = high + 1
            if low == len(turns):
                return None, opens
            high = min(2 * high + 1, len(turns) - 1)
        while low < high:
            middle = (low + high) // 2
            if self.plan(job, turns[middle], opens) is not None:
                high = middle
            else:
                low = middle + 1
        at = turns[high]
        found = self.plan(job, at, opens)
        assert found is not None
        return Start(Wall(at), found.places, self._needed(found, since, at)), opens

    def plan(self, job: Job, at: float, opens: Mapping[str, float] | None = None) -> Plan | None:
        """The placement of a job at that time; None where it doesn't fit.

        ``opens`` is the time of each host before which none of its workers fits there.
        """
        hosts = self.hosts if opens is None else [host for host in self.hosts if opens[host.name] <= at]
        self.looked_at += len(hosts)
        found = plan_job(job, hosts, lambda host, own: self._capacity(host, own, at))
        return found if isinstance(found, Plan) else None

    def book(
        self, gang: Gang, places: tuple[Place, ...], until: float, job_id: str = "", basis: Basis | None = None
    ) -> None:
        """A gang holds these places until then, by an estimate of that kind for the job."""
        for pool, place in zip(gang.seats, places, strict=False):
            self._booked.setdefault(place.host, []).append(_Booked(until, gang, pool, place, job_id, basis))

    def cancel(self, gang: Gang, places: tuple[Place, ...]) -> None:
        """Take back the last booking of these places."""
        for place in places:
            self._booked[place.host] = [
                booked
                for booked in self._booked[place.host]
                if booked.gang is not gang or booked.place is not place
            ]

    def _bound(self, job: Job, since: float) -> tuple[float, dict[str, float]]:
        """A time before which a job certainly doesn't fit, and the same for its workers on each host.

        Of GPUs only the number is counted, and each pool as if it were alone: no plan is made for it.
        """
        self.looked_at += len(self.hosts)
        opens = dict.fromkeys(self._held, math.inf)
        if job.reserved:
            # What it holds itself is free to it.
            return since, dict.fromkeys(opens, since)
        return max(self._bound_of(pool, since, opens) for pool in job.gang.pools if pool.replicas), opens

    def _bound_of(self, pool: Pool, since: float, opens: dict[str, float]) -> float:
        total, more = 0, list[tuple[float, int]]()
        for name, held in self._held.items():
            free, booked = self._free[name], self._booked.get(name, ())
            left = [len(free.gpus), free.cpus, free.memory_mb, free.slots]
            comes = [(at, len(a.gpus), a.cpus, a.memory_mb) for at, _, a in held if at < math.inf]
            for other in booked:
                asked = other.pool
                share = (len(other.place.gpus), asked.cpus, asked.memory_mb)
                left = [left[0] - share[0], left[1] - share[1], left[2] - share[2], left[3] - 1]
                comes.append((other.until, *share))
            if booked:
                comes.sort()
            before = _workers(pool, *left)
            total += before
            if before:
                opens[name] = min(opens[name], since)
            for at, gpus, cpus, memory_mb in comes:
                left = [left[0] + gpus, left[1] + cpus, left[2] + memory_mb, left[3] + 1]
                now = _workers(pool, *left)
                if now > before:
                    more.append((max(at, since), now - before))
                    opens[name] = min(opens[name], max(at, since))
                    before = now
        if total >= pool.replicas:
            return since
        for at, workers in sorted(more):
            total += workers
            if total >= pool.replicas:
                return at
        return math.inf

    def _booked_until(self) -> set[float]:
        return {booked.until for on_host in self._booked.values() for booked in on_host}

    def _capacity(self, host: Host, own: frozenset[str], at: float) -> HostCapacity:
        left = self._without(host, own, at)
        for booked in self._booked.get(host.name, ()):
            if booked.until > at:
                pool, left = booked.pool, left.copy()
                left.gpus = [gpu for gpu in left.gpus if gpu[0] not in booked.place.gpus]
                left.cpus -= pool.cpus
                left.memory_mb -= pool.memory_mb
                left.slots -= 1
        return left

    def _without(self, host: Host, own: frozenset[str], at: float) -> HostCapacity:
        held = self._held[host.name]
        gone = bisect.bisect_right(held, at, key=_first)
        if not gone and not own:
            return self._free[host.name]
        if own or (host.name, gone) not in self._known:
            # Later shares count if they are booked.
            there = {key for _, key, _ in held[gone:]} - own
            found = capacity_of(host, frozenset(host.allocations.keys() - there))
            if own:
                return found
            self._known[host.name, gone] = found
        return self._known[host.name, gone]

    def _needed(self, found: Plan, since: float, at: float) -> tuple[Needed, ...]:
        """The jobs that have to end on the hosts of a plan between the two times, and the kind of their estimate."""
        names = {place.host for place in found.places}
        on = {key.rpartition("/")[0] for name in names for _, key, _ in self._held[name]}
        needed = {
            Needed(end.at, end.job_id, end.estimate.basis)
            for end in self.ends
            if since < end.at <= at and end.job_id in on and end.estimate is not None
        }
        booked = (booked for name in names for booked in self._booked.get(name, ()) if since < booked.until <= at)
        needed |= {Needed(each.until, each.job_id, each.basis) for each in booked if each.basis is not None}
        return tuple(sorted(needed, key=lambda each: each[:2]))


def _first(share: tuple[float, str, Allocation]) -> float:
    return share[0]


def _workers(pool: Pool, gpus: int, cpus: int, memory_mb: int, slots: int) -> int:
    """The most workers of a pool that fit beside each other in so much."""
    most = slots
    if pool.gpus:
        most = min(most, gpus // pool.gpus)
    if pool.cpus:
        most = min(most, cpus // pool.cpus)
    if pool.memory_mb:
        most = min(most, memory_mb // pool.memory_mb)
    return max(most, 0)


MOST_FORECAST = 50
"""Waiting jobs whose start is projected for a view."""
_PLANS = 1_000
"""Hosts that are looked at for them at most, each once for a job."""


def most_forecast(hosts: list[Host]) -> int:
    """How many waiting jobs have their start projected for a view; fewer the more hosts there are to look at."""
    return min(MOST_FORECAST, max(_PLANS // max(len(hosts), 1), 1))


def forecast(
    cluster: Cluster, first: Sequence[Job], hosts: list[Host], now: Now, loan_s: float
) -> dict[str, Start]:
    """The projected starts of the first jobs of a queue, none of which delays one ahead of it: for views alone.

    They rest on what may be shown of how long jobs run, as ``RunTimes.supported`` has it.
    """
    found: dict[str, Start] = {}
    if not first:
        return found
    supported = cluster.run_times.supported
    outlook = Outlook(cluster.free_capacity, hosts, ends_of(cluster, now, loan_s, first[0], supported))
    for job in first:
        start = outlook.earliest(job, now.wall)
        if start is not None:
            found[job.id] = start
            estimate = supported(job, job.ran_s)
            until = start.at + max(estimate.seconds - job.ran_s, 0.0)
            outlook.book(job.gang, start.places, until, job.id, estimate.basis)
    return found
