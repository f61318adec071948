"""When what jobs hold is expected to come free, and when others would have room on hosts for it.

The estimates are those of ``model.run_times``; what is being stopped is as good as gone, and revocable jobs are gone
for a job that they give way to. The jobs that wait in one pass ask for much the same: it is found once for all of them.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Strategy
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Allocation, Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Basis, Estimate, ran_so_far
from holdfast_controller.core.scheduling.fair_share.guarantees import guaranteed_loans
from holdfast_controller.core.scheduling.preempt import at_once, goes_before, loan_is_due, overdue_at


@dataclass(frozen=True, slots=True)
class End:
    """When a job's hosts are expected to be free, and the estimate that says so; None where none is needed."""

    at: float
    job_id: str
    estimate: Estimate | None = None


EstimateOf = Callable[[Job, float], Estimate]
"""The estimate of a job that has run for so many seconds."""


class Ends:
    """The expected ends of all jobs that hold something, as jobs see them that wait: found once for all of these."""

    def __init__(self, cluster: Cluster, now: Now, loan_s: float, estimate_of: EstimateOf | None = None) -> None:
        self._cluster, self._now, self._loan_s = cluster, now, loan_s
        self._alike: list[End] = []
        """The same for all."""
        self._revocable: list[tuple[Job, End]] = []
        """Jobs that may have to give way before that."""
        kept, estimate_of = guaranteed_loans(cluster), estimate_of or cluster.run_times.estimate
        for name in cluster.holdings.gpus_by_job:
            job = cluster.jobs.whole[name]
            end = _end_of(cluster, job, now, estimate_of)
            if end.estimate is not None and job.revocable and job.unreconciled is None and job.id not in kept:
                self._revocable.append((job, end))
            elif math.isfinite(end.at):
                self._alike.append(end)
        self._alike.sort(key=_turn)
        self._held: dict[tuple[End, ...], Held] = {}

    def held(self, waiting: Job) -> Held:
        """All that is held, and when it comes free for a job that waits; equal ones are one object."""
        own = tuple(end for end in (self._before(*each, waiting) for each in self._revocable) if end is not None)
        found = self._held.get(own)
        if found is None:
            ends = sorted((*self._alike, *own), key=_turn) if own else self._alike
            found = self._held[own] = Held(self._cluster.free_capacity, ends)
        return found

    def _before(self, job: Job, end: End, waiting: Job) -> End | None:
        back = _given_back_at(self._cluster, job, self._now, self._loan_s, waiting)
        if back < end.at:
            return End(back, job.id)
        return end if math.isfinite(end.at) else None


def _turn(end: End) -> tuple[float, str]:
    return end.at, end.job_id


def _end_of(cluster: Cluster, job: Job, now: Now, estimate_of: EstimateOf) -> End:
    if job.terminal or job.stopping:
        never = job.terminal or job.reserved or cluster.runtime_of(job.id).stuck
        return End(math.inf if never else now.wall, job.id)
    warned = job.leave.due if job.leave is not None else job.pause_due
    if warned is not None:
        return End(max(warned, now.wall), job.id)
    ran_s = ran_so_far(job, now.wall)
    estimate = estimate_of(job, ran_s)
    return End(now.wall + max(estimate.seconds - ran_s, 0.0), job.id, estimate)


def _given_back_at(cluster: Cluster, job: Job, now: Now, loan_s: float, waiting: Job) -> float:
    """When a revocable job gives way to ``waiting`` at the latest, if that then fits."""
    if not goes_before(waiting, job):
        return math.inf
    if not at_once(cluster, job, waiting, now) and not loan_is_due(cluster, job):
        if job.loan is None:
            return math.inf
        overdue = math.inf if waiting.gang.strategy is Strategy.SPOT else overdue_at(cluster, waiting)
        return max(min(job.loan.since + loan_s, overdue), now.wall)
    claims_s = waiting.no_claim_before or now.wall
    return now.wall if cluster.elapsed_loans.get(waiting.id) == waiting.attempt else max(claims_s, now.wall)


_Asked = tuple[int, int, int]
"""GPUs, cores and memory of one worker."""


@dataclass(frozen=True, slots=True)
class Booked:
    """A place that a worker of ``gang`` will hold, or does since a moment ago, until then."""

    until: float
    gang: Gang
    pool: Pool
    place: Place
    job_id: str
    basis: Basis | None


CapacityTimes = list[tuple[float, int]]
"""When so many more workers fit on a host, the earliest first; before all times those that fit now."""


class Room:
    """When workers that ask for the same fit on hosts: as if they were alone, and of GPUs only the number."""

    def __init__(self, on_host: Mapping[str, CapacityTimes]) -> None:
        self.opens = {name: found[0][0] if found else math.inf for name, found in on_host.items()}
        """By host: when the first one fits; infinite where none ever will."""
        self._all = sorted(each for found in on_host.values() for each in found)
        self._totals = list(itertools.accumulate(workers for _, workers in self._all))

    def first(self, workers: int) -> float:
        """When so many fit; infinite where they never do."""
        at = bisect.bisect_left(self._totals, workers)
        return self._all[at][0] if at < len(self._all) else math.inf


class Held:
    """The shares that are held at one moment, and when each is expected to come free.

    All that is asked here of a host is the same for the outlooks of one pass, most of which have the same hosts.
    """

    def __init__(self, free: FreeCapacity, ends: Sequence[End]) -> None:
        self.ends = ends
        """The earliest first."""
        self._free = free
        self._until = {end.job_id: end.at for end in ends}
        self.free: dict[str, HostCapacity] = {}
        """By host: what is free there at the beginning."""
        self.shares: dict[str, list[tuple[float, str, Allocation]]] = {}
        """By host: when each share comes free, the earliest first."""
        self._free_at: dict[str, list[float]] = {}
        """By host: when its shares come free, without those that never do."""
        self._looked_at: dict[int, list[Host]] = {}
        """The lists of hosts that were noted, which are kept."""
        self._known: dict[tuple[str, int], HostCapacity] = {}
        """By host, and by the number of shares that are gone."""
        self._times: dict[int, tuple[list[Host], list[float]]] = {}
        """By the list of hosts that was asked for, which is kept with it."""
        self._rooms: dict[tuple[int, _Asked], Room] = {}
        self._known_times: dict[_Asked, dict[str, CapacityTimes]] = {}
        """By host."""

    def look_at(self, hosts: list[Host]) -> None:
        """Note what is held on these hosts now; those that are known stay as they were."""
        if id(hosts) in self._looked_at:
            return
        self._looked_at[id(hosts)] = hosts
        until = self._until.get
        for host in [host for host in hosts if host.name not in self.free]:
            self.free[host.name] = self._free.capacity_of(host)
            held = [(until(job, math.inf), key, share) for job, key, share in self._free.shares(host)]
            if len(held) > 1:
                held.sort(key=_first)
            self.shares[host.name] = held
            self._free_at[host.name] = [at for at, *_ in held if at < math.inf]

    def times(self, hosts: list[Host]) -> list[float]:
        """The times at which something comes free on one of these hosts, the earliest first."""
        if id(hosts) not in self._times:
            found = sorted(set().union(*(self._free_at[host.name] for host in hosts)))
            self._times[id(hosts)] = hosts, found
        return self._times[id(hosts)][1]

    def room(self, pool: Pool, hosts: list[Host]) -> Room:
        """When workers of a pool fit on these hosts."""
        self.times(hosts)
        key = id(hosts), (pool.gpus, pool.cpus, pool.memory_mb)
        found = self._rooms.get(key)
        if found is None:
            found = self._rooms[key] = Room(self.capacity_times(pool, hosts))
        return found

    def capacity_times(self, pool: Pool, hosts: list[Host]) -> dict[str, CapacityTimes]:
        """The same by host."""
        known = self._known_times.setdefault((pool.gpus, pool.cpus, pool.memory_mb), {})
        for host in [host for host in hosts if host.name not in known]:
            known[host.name] = capacity_times_of(pool, self.free[host.name], self.shares[host.name])
        return {host.name: known[host.name] for host in hosts}

    def capacity(self, host: Host, own: frozenset[str], at: float) -> HostCapacity:
        """The free capacity of a host once all shares are gone that are expected to be, and a job's ``own``."""
        held = self.shares[host.name]
        gone = bisect.bisect_right(held, at, key=_first)
        if not gone and not own:
            return self.free[host.name]
        if own or (host.name, gone) not in self._known:
            # Later shares count if they are booked.
            there = {key for _, key, _ in held[gone:]} - own
            found = capacity_of(host, frozenset(host.allocations.keys() - there))
            if own:
                return found
            self._known[host.name, gone] = found
        return self._known[host.name, gone]


def _first(share: tuple[float, str, Allocation]) -> float:
    return share[0]


def capacity_times_of(
    pool: Pool,
    free: HostCapacity,
    held: Sequence[tuple[float, str, Allocation]],
    booked: Sequence[Booked] = (),
) -> CapacityTimes:
    """When workers of a pool fit on a host, of which so much is free and so much held."""
    # Scalars and no calls of ``min``: a pass asks this of all hosts.
    gpus, cpus, memory_mb, slots = len(free.gpus), free.cpus, free.memory_mb, free.slots
    comes = [(at, len(a.gpus), a.cpus, a.memory_mb) for at, _, a in held if at < math.inf]
    for other in booked:
        share = len(other.place.gpus), other.pool.cpus, other.pool.memory_mb
        gpus, cpus, memory_mb, slots = gpus - share[0], cpus - share[1], memory_mb - share[2], slots - 1
        comes.append((other.until, *share))
    if booked:
        comes.sort()
    found, before = list[tuple[float, int]](), _workers(pool, gpus, cpus, memory_mb, slots)
    if before:
        found.append((-math.inf, before))
    for at, more_gpus, more_cpus, more_memory_mb in comes:
        gpus, cpus, memory_mb, slots = gpus + more_gpus, cpus + more_cpus, memory_mb + more_memory_mb, slots + 1
        now = _workers(pool, gpus, cpus, memory_mb, slots)
        if now > before:
            found.append((at, now - before))
            before = now
    return found


def _workers(pool: Pool, gpus: int, cpus: int, memory_mb: int, slots: int) -> int:
    """The most workers of a pool that fit beside each other in so much."""
    most = slots
    if pool.gpus and (fit := gpus // pool.gpus) < most:
        most = fit
    if pool.cpus and (fit := cpus // pool.cpus) < most:
        most = fit
    if pool.memory_mb and (fit := memory_mb // pool.memory_mb) < most:
        most = fit
    return most if most > 0 else 0
