"""Projection: when and where a waiting job will fit, by the estimated ends of what runs now.

What comes free when is known from ``expected_ends``. The time that starting and stopping take is not in it. Hosts are
there again once maintenance that is planned, or another's reservation, is over. What no estimate says anything of, such
as a host that is given back by hand, never comes free in a projection.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host, Place, job_of
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Basis
from holdfast_controller.core.scheduling.absences import Absences, Cause, first_open, is_absent
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.projections.expected_ends import (
    Booked,
    Ends,
    Held,
    Room,
    capacity_times_of,
)


class Needed(NamedTuple):
    """A job that has to end for another to start, and when that is expected, by which kind of estimate.

    Or a host, and the cause of its absence.
    """

    at: float
    name: str
    basis: Basis | Cause


@dataclass(frozen=True, slots=True)
class Start:
    """A waiting job's projected start, its places then, and what has to end for it: the last one last."""

    at: Wall
    places: tuple[Place, ...]
    waits_for: tuple[Needed, ...] = ()


@dataclass
class Outlook:
    """The hosts as they will be once jobs have ended, and others, which are ``booked``, have taken their places."""

    held: Held
    hosts: list[Host]
    absences: Callable[[Job], Absences] = lambda _: {}
    """When a job may not start on some of them."""
    looked_at: int = 0
    """Hosts that were looked at so far, each once for a job's bound and once for each plan that it is in."""
    _booked: dict[str, list[Booked]] = field(default_factory=dict)
    """By host."""
    _absences: dict[str, Absences] = field(default_factory=dict)
    """By job."""

    def __post_init__(self) -> None:
        self.held.look_at(self.hosts)

    def of_one(self, job: Job, since: float) -> Start | None:
        """The same as ``earliest``, for an outlook that is asked for nothing else: it drops hosts that don't matter."""
        found, opens = self._search(job, since)
        if found is not None:
            self.hosts = [host for host in self.hosts if opens[host.name] <= found.at]
        return found

    def earliest(self, job: Job, since: float) -> Start | None:
        """The first time from ``since`` on at which a job fits; None where it doesn't, whatever ends."""
        return self._search(job, since)[0]

    def _search(self, job: Job, since: float) -> tuple[Start | None, Mapping[str, float]]:
        turns = self._turns(job, since)
        bound, opens = self._bound(job, since)
        low = high = bisect.bisect_left(turns, bound)
        if high == len(turns):
            return None, opens
        while (found := self.plan(job, turns[high], opens)) is None:
            low = high + 1
            if low == len(turns):
                return None, opens
            high = min(2 * high + 1, len(turns) - 1)
        while low < high:
            middle = (low + high) // 2
            if (earlier := self.plan(job, turns[middle], opens)) is not None:
                high, found = middle, earlier
            else:
                low = middle + 1
        at = turns[high]
        return Start(Wall(at), found.places, self._needed(job, found, since, at)), opens

    def _turns(self, job: Job, since: float) -> list[float]:
        """The times from ``since`` on at which something comes free, or a host comes back."""
        times = self.held.times(self.hosts)
        more = {each.until for on_host in self._booked.values() for each in on_host}
        more |= {each.before for on_host in self._absences_of(job).values() for each in on_host}
        if not more:
            return [since, *times[bisect.bisect_right(times, since) :]]
        return [since, *sorted(at for at in more.union(times) if since < at < math.inf)]

    def _absences_of(self, job: Job) -> Absences:
        if job.id not in self._absences:
            self._absences[job.id] = self.absences(job)
        return self._absences[job.id]

    def plan(self, job: Job, at: float, opens: Mapping[str, float] | None = None) -> Plan | None:
        """The placement of a job at that time; None where it doesn't fit.

        ``opens`` is the time of each host before which none of its workers fits there.
        """
        hosts = self.hosts if opens is None else [host for host in self.hosts if opens[host.name] <= at]
        if absences := self._absences_of(job):
            hosts = [host for host in hosts if not is_absent(absences.get(host.name, ()), at)]
        self.looked_at += len(hosts)
        found = plan_job(job, hosts, lambda host, own: self._capacity(host, own, at))
        return found if isinstance(found, Plan) else None

    def book(
        self, gang: Gang, places: tuple[Place, ...], until: float, job_id: str = "", basis: Basis | None = None
    ) -> None:
        """A gang holds these places until then, by an estimate of that kind for the job."""
        for pool, place in zip(gang.seats, places, strict=False):
            self._booked.setdefault(place.host, []).append(Booked(until, gang, pool, place, job_id, basis))

    def cancel(self, gang: Gang, places: tuple[Place, ...]) -> None:
        """Take back the last booking of these places."""
        for place in places:
            self._booked[place.host] = [
                booked
                for booked in self._booked[place.host]
                if booked.gang is not gang or booked.place is not place
            ]

    def _bound(self, job: Job, since: float) -> tuple[float, Mapping[str, float]]:
        """A time before which a job certainly doesn't fit, and the same for its workers on each host.

        No plan is made for it.
        """
        self.looked_at += len(self.hosts)
        if job.reserved:
            # What it holds itself is free to it.
            return since, {host.name: since for host in self.hosts}
        pools = [pool for pool in job.gang.pools if pool.replicas]
        found = [self._room(pool, self._absences_of(job), since) for pool in pools]
        bound = max(each.first(pool.replicas) for each, pool in zip(found, pools, strict=True))
        if len(found) == 1:
            return max(bound, since), found[0].opens
        opens = {host.name: min(each.opens[host.name] for each in found) for host in self.hosts}
        return max(bound, since), opens

    def _room(self, pool: Pool, absences: Absences, since: float) -> Room:
        held = self.held
        if not absences and not any(self._booked.values()):
            return held.room(pool, self.hosts)
        capacity_times = held.capacity_times(pool, self.hosts)
        for name, booked in self._booked.items():
            if booked and name in capacity_times:
                capacity_times[name] = capacity_times_of(pool, held.free[name], held.shares[name], booked)
        for name in absences.keys() & capacity_times.keys():
            back = first_open(absences[name], since)
            capacity_times[name] = [
                (max(at, back), workers) for at, workers in capacity_times[name] if back < math.inf
            ]
        return Room(capacity_times)

    def _capacity(self, host: Host, own: frozenset[str], at: float) -> HostCapacity:
        left = self.held.capacity(host, own, at)
        taken = [(each.pool, each.place) for each in self._booked.get(host.name, ()) if each.until > at]
        return left.beside(taken) if taken else left

    def _needed(self, job: Job, found: Plan, since: float, at: float) -> tuple[Needed, ...]:
        """The jobs and absences that have to end on the hosts of a plan between the two times."""
        names = {place.host for place in found.places}
        on = {job_of(key) for name in names for _, key, _ in self.held.shares[name]}
        needed = {
            Needed(end.at, end.job_id, end.estimate.basis)
            for end in self.held.ends
            if since < end.at <= at and end.job_id in on and end.estimate is not None
        }
        booked = (booked for name in names for booked in self._booked.get(name, ()) if since < booked.until <= at)
        needed |= {Needed(each.until, each.job_id, each.basis) for each in booked if each.basis is not None}
        absent = ((each, name) for name in names for each in self._absences_of(job).get(name, ()))
        needed |= {Needed(each.before, name, each.cause) for each, name in absent if since < each.before <= at}
        return tuple(sorted(needed, key=lambda each: each[:2]))


MOST_FORECAST = 50
"""Waiting jobs whose start is projected for a view."""
_PLANS = 1_000
"""Hosts that are looked at for them at most, each once for a job."""


def most_forecast(hosts: list[Host]) -> int:
    """How many waiting jobs have their start projected for a view; fewer the more hosts there are to look at."""
    return min(MOST_FORECAST, max(_PLANS // max(len(hosts), 1), 1))


def forecast(
    cluster: Cluster, first: Sequence[Job], open_hosts: OpenHosts, now: Now, loan_s: float
) -> dict[str, Start]:
    """The projected starts of the first jobs of a queue, none of which delays one ahead of it: for views alone.

    They rest on what may be shown of how long jobs run, as ``RunTimes.supported`` has it.
    """
    found: dict[str, Start] = {}
    if not first:
        return found
    supported = cluster.run_times.supported
    held = Ends(cluster, now, loan_s, supported).held(first[0])
    outlook = Outlook(held, open_hosts.with_absent, open_hosts.absences)
    for job in first:
        start = outlook.earliest(job, now.wall)
        if start is not None:
            found[job.id] = start
            estimate = supported(job, job.ran_s)
            until = start.at + max(estimate.seconds - job.ran_s, 0.0)
            outlook.book(job.gang, start.places, until, job.id, estimate.basis)
    return found
