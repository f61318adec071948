"""Hosts that are open to a job: not the spares that are for others, and none that is drained before it ends.

A drain that is planned to begin within a day keeps off its host all jobs that are expected to run into it, by the
estimates of ``model.run_times``: what they have declared or learned, at most their timeout. SPOT jobs may have the host
until then, and jobs that hold places there keep them. Hosts that are reserved for a project, or a user, are kept from
the jobs of all others alike, however far ahead that is: they count on them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection
from functools import cached_property
from operator import attrgetter, itemgetter

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.lifecycle.other_hosts import takes_work
from holdfast_controller.core.model.clock import NEVER, Now, Wall, moment, time_of_day
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.reservations import Reservation, Whose
from holdfast_controller.core.model.hosts.spares import closed_to, spares_kept
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.absences import Absence, Absences, Cause
from holdfast_controller.core.scheduling.backfill import Admitted, Reservations, admitted_hosts
from holdfast_controller.core.scheduling.host_reservations import chosen_hosts
from holdfast_controller.core.scheduling.placement import Plan

AHEAD_S = 86_400.0
"""Drains that begin later keep nothing off: a job that starts so long before has had its use of the host."""


def ends_at(cluster: Cluster, job: Job, now: Now) -> Wall:
    """The expected end of a waiting job that starts now."""
    return now.wall_in(max(cluster.run_times.estimate(job, job.ran_s).seconds - job.ran_s, 0.0))


@dataclass(frozen=True, slots=True)
class Begun:
    """The hosts of reservations that have begun, and their kinds (see ``OpenHosts.apart``)."""

    hosts: list[Host]
    kinds: frozenset[str]


class OpenHosts:
    """The hosts that take work at one moment, and which of them each job may have."""

    def __init__(self, cluster: Cluster, hosts: list[Host], now: Now | None) -> None:
        self.cluster, self.hosts, self.now = cluster, hosts, now
        self.drains: dict[str, Wall] = {}
        """By host: when a drain begins that is planned."""
        some = cluster.in_maintenance if hosts is cluster.schedulable else hosts
        planned = [(host.name, host.maintenance) for host in some if host.maintenance is not None]
        self.planned = {name: plan for name, plan in planned if not plan.begun}
        """By host: its maintenance that has yet to begin."""
        if self.planned and now is not None:
            soon = now.wall_in(AHEAD_S)
            self.drains = {name: m.start for name, m in self.planned.items() if m.drain and m.start <= soon}
        self.any_reserved = bool(cluster.reservations.by_name)
        self._own: dict[Whose, str] = {}
        """By project and owner: the names of their reservations, as far as they were asked for."""
        self._begun: dict[str, Begun] = {}
        """By these names: the hosts of those that have begun."""
        self._others: dict[str, list[tuple[Wall, Reservation, list[str]]]] = {}
        """By these names: the first reservation for others of hosts that are in the same ones, the earliest first."""
        self._closed: dict[tuple[str, int], dict[str, Reservation]] = {}
        """By these names, and the number of those others: their hosts."""
        self._open: dict[tuple[bool, frozenset[str]], list[Host]] = {}
        """All hosts, or those that are no spares, without some: jobs to which the same are closed share it."""
        self._admitted: Admitted = {}
        self._known: dict[tuple[str, str], str] = {}
        """Equal words are one object."""
        self.reserved: dict[str, list[Reservation]] = {}
        """By host: the reservations that it is in, the next one first."""
        chosen = chosen_hosts(cluster, hosts, now) if self.any_reserved and now is not None else {}
        for each in sorted(map(cluster.reservations.by_name.__getitem__, chosen), key=lambda each: each.start):
            for host in chosen[each.name]:
                self.reserved.setdefault(host.name, []).append(each)

    @cached_property
    def no_spares(self) -> list[Host]:
        """The hosts that are no spares."""
        spares = self.cluster.spares
        return [host for host in self.hosts if host.name not in spares] if spares else self.hosts

    @cached_property
    def open_to_all(self) -> list[Host]:
        """The hosts that are no spares, and about to be neither drained nor reserved."""
        return [host for host in self.no_spares if host.name not in self.drains and host.name not in self.reserved]

    @cached_property
    def coming_back(self) -> list[Host]:
        """Hosts that are no spares and will take work once their maintenance is over, and that no one has reserved."""
        cluster = self.cluster
        if not cluster.coming_back or self.now is None or self.hosts is not cluster.schedulable:
            return []
        return [
            host
            for host in cluster.coming_back
            if host.name not in cluster.spares
            and not any(each.suits(host) for each in cluster.reservations.by_name.values())
        ]

    @cached_property
    def apart(self) -> dict[str, str]:
        """By host that is reserved: its kind, with the names of its reservations."""
        reserved = self.reserved
        return {
            host.name: f"{host.inventory.kind} {','.join(each.name for each in reserved[host.name])}"
            for host in (self.hosts if reserved else ())
            if host.name in reserved
        }

    def admitted(self, gang: Gang) -> Collection[Host]:
        """The hosts that a gang's selector admits, open to it or not."""
        return self.hosts if gang.anywhere else admitted_hosts(gang, self.hosts, self._admitted).values()

    def of(self, job: Job, hosts: list[Host] | None = None) -> list[Host]:
        """The part of ``hosts``, or of all, that is open to a job."""
        closed, hosts = self.closed_to(job), self.hosts if hosts is None else hosts
        if not closed:
            return hosts
        if hosts is not self.hosts and hosts is not self.no_spares:
            return [host for host in hosts if host.name not in closed]
        key = hosts is self.hosts, frozenset(closed)
        found = self._open.get(key)
        if found is None:
            found = self._open[key] = [host for host in hosts if host.name not in closed]
        return found

    def closed_to(self, job: Job) -> Collection[str]:
        """The hosts that a job may have nothing new of."""
        spares = closed_to(self.cluster.spares, job)
        if not self.drains and not self.reserved:
            return spares
        spares = [name for name in spares if name not in self.reserved or not self._is_its_own(name, job)]
        drained, reserved = self.drained_before(job), self.reserved_before(job)
        return {*drained, *reserved, *spares} if drained or spares else reserved

    def drained_before(self, job: Job) -> dict[str, Wall]:
        """By host: when a drain begins before a job that starts now is expected to end."""
        if not self.drains or self.now is None or job.gang.strategy is Strategy.SPOT:
            return {}
        until, own = ends_at(self.cluster, job, self.now), {job.places[index].host for index in job.reserved}
        return {name: at for name, at in self.drains.items() if at < until and name not in own}

    def reserved_before(self, job: Job) -> dict[str, Reservation]:
        """By host: the reservation for another project that begins before a job that starts now is expected to end."""
        if not self.reserved or self.now is None or job.gang.strategy is Strategy.SPOT:
            return {}
        found = self._closed_until(self._own_of(job), job.whose, ends_at(self.cluster, job, self.now))
        if own := {job.places[index].host for index in job.reserved}:
            return {name: first for name, first in found.items() if name not in own}
        return found

    def _closed_until(self, own: str, whose: Whose, until: Wall) -> dict[str, Reservation]:
        """By host: the reservation for others that begins before then; not to be changed, many jobs share it."""
        if (others := self._others.get(own)) is None:
            firsts = [
                (first.start, first, names)
                for reservations, names in self._reserved_alike
                if (first := next((each for each in reservations if not each.is_for(whose)), None)) is not None
            ]
            others = self._others[own] = sorted(firsts, key=itemgetter(0))
        key = own, bisect_left(others, until, key=itemgetter(0))
        if (found := self._closed.get(key)) is None:
            found = self._closed[key] = {name: first for _, first, names in others[: key[1]] for name in names}
        return found

    @cached_property
    def _reserved_alike(self) -> list[tuple[list[Reservation], list[str]]]:
        """The hosts that are in the same reservations, with these."""
        alike: dict[str, tuple[list[Reservation], list[str]]] = {}
        for name, each in self.reserved.items():
            alike.setdefault(",".join(one.name for one in each), (each, []))[1].append(name)
        return list(alike.values())

    def _is_its_own(self, name: str, job: Job) -> bool:
        return any(self._has_begun_for(job, each) for each in self.reserved[name])

    def own(self, job: Job) -> list[Host]:
        """The hosts that are reserved for such jobs now, and open to it: another may begin too soon."""
        begun = self.begun_for(job)
        return self.of(job, begun.hosts) if begun.hosts else []

    @cached_property
    def with_absent(self) -> list[Host]:
        """The hosts that are no spares, and those that will be back: a start may be projected there."""
        return [*self.no_spares, *self.coming_back] if self.coming_back else self.no_spares

    def absences(self, job: Job) -> Absences:
        """When a job may not start on hosts that are ``with_absent``, though they are there before or after."""
        now, found = self.now, dict[str, list[Absence]]()
        if now is None or not (self.planned or self.reserved or self.coming_back):
            return found
        lasts_s = ends_at(self.cluster, job, now) - now.wall
        is_spot, own = job.gang.strategy is Strategy.SPOT, {job.places[index].host for index in job.reserved}
        for host in self.coming_back:
            found[host.name] = [Absence(-math.inf, host.returns_at or math.inf, Cause.MAINTENANCE)]
        for name, plan in self.planned.items():
            if name not in own:
                ahead_s = min(lasts_s, AHEAD_S) if plan.drain and not is_spot else 0.0
                found[name] = [Absence(plan.start - ahead_s, plan.end or math.inf, Cause.MAINTENANCE)]
        for name, reservations in ({} if is_spot else self.reserved).items():
            others = [each for each in reservations if not each.is_for(job.whose)] if name not in own else []
            if others:
                reserved = [Absence(each.start - lasts_s, each.end, Cause.RESERVATION) for each in others]
                found.setdefault(name, []).extend(reserved)
        return found

    def begun_for(self, job: Job) -> Begun:
        """The hosts that are reserved for such jobs now."""
        if self.now is None or not (own := self._own_of(job)):
            return _NONE_BEGUN
        if (found := self._begun.get(own)) is None:
            names = {
                name
                for reservations, names in self._reserved_alike
                if any(self._has_begun_for(job, each) for each in reservations)
                for name in names
            }
            hosts = [host for host in self.hosts if host.name in names]
            found = Begun(hosts, frozenset(self.apart[host.name] for host in hosts))
            self._begun[own] = found
        return found

    def why_there(self, job: Job, hosts: Collection[str]) -> str:
        """The reservations that gave a job some of these hosts, in words; empty for none."""
        if not self.may_have_more(job):
            return ""
        names = {
            each.name for name in hosts for each in self.reserved.get(name, ()) if self._has_begun_for(job, each)
        }
        whose = "project" if all(self.cluster.reservations.by_name[name].project for name in names) else "user"
        return f"on hosts of its {whose}'s reservation {', '.join(sorted(names))}" if names else ""

    def _has_begun_for(self, job: Job, reservation: Reservation) -> bool:
        begun = self.now is not None and reservation.start <= self.now.wall
        return begun and reservation.is_for(job.whose)

    def first_free(self, job: Job, closed: set[str]) -> Plan | None:
        """The placement of a job that ``is_alone``, on none of the ``closed`` hosts; None where it doesn't fit."""
        cluster, pool = self.cluster, job.gang.pools[0]
        closed = closed.union(self.closed_to(job))
        may_take = lambda host: host.name not in closed and takes_work(cluster, host)  # noqa: E731
        found = cluster.free_capacity.first(pool, cluster.hosts, may_take)
        return Plan((found.copy().take(pool),)) if found is not None else None

    def last_end(self, job: Job) -> Wall:
        """The last time before which a job would have to end to have one more of the hosts; ``NEVER`` for none."""
        ahead = {*self.drained_before(job).values(), *map(attrgetter("start"), self.reserved_before(job).values())}
        return max((at for at in ahead if self.now is not None and at > self.now.wall), default=NEVER)

    def shape(self, job: Job) -> str:
        """Equal for jobs that ask the same of the same hosts; see ``Gang.shape``."""
        return self._with_own(job.gang.shape, job)

    def may_have_more(self, job: Job) -> bool:
        """Whether a job may have hosts that others like it may not."""
        return bool(self._own_of(job))

    def _own_of(self, job: Job) -> str:
        """The reservations that are for such jobs; see ``HostReservations.of``."""
        if not self.any_reserved:
            return ""
        found = self._own.get(job.whose)
        if found is None:
            found = self._own[job.whose] = self.cluster.reservations.of(job.whose)
        return found

    def _with_own(self, words: str, job: Job) -> str:
        if not (own := self._own_of(job)):
            return words
        found = self._known.get((words, own))
        if found is None:
            found = self._known[words, own] = own_words(words, own)
        return found

    def lines_apart(self) -> dict[str, str]:
        """By job that waits and may have reserved hosts: its line there, in which all may have the same hosts."""
        queue, jobs, found = self.cluster.queue, self.cluster.jobs.whole, dict[str, str]()
        if not self.any_reserved:
            return found
        by_project: dict[str, bool] = {}
        for each in self.cluster.reservations.by_name.values():
            by_project[each.project] = by_project.get(each.project, False) or bool(each.user)
        if "" in by_project:
            by_project = dict.fromkeys((project for _, waiting in queue.classes() for project in waiting), True)
        for _, waiting in queue.classes():
            for project, for_users in by_project.items():
                there: dict[str, str] = {}
                for _, name in waiting.get(project, ()):
                    if not (line := queue.lines[name]):
                        continue
                    if for_users or line not in there:
                        there[line] = self._with_own(line, jobs[name])
                    if there[line] is not line:
                        found[name] = there[line]
        return found

    def kind(self, job: Job) -> str:
        """Equal for jobs that are treated alike while they wait; see ``Gang.kind``."""
        return self._with_own(job.gang.kind, job)

    def reservations(self) -> Reservations:
        """Nothing kept for waiting jobs yet; of hosts that are reserved only what those could have is kept for them."""
        return Reservations(apart=self.apart, whole_of=self.cluster.free_capacity.whole_of, admitted=self._admitted)

    def why_closed(self, job: Job) -> str:
        """Which hosts a job may not have, after a semicolon; empty where all are open to it."""
        drained = self.drained_before(job)
        spares = closed_to(self.cluster.spares, job)
        words = [spares_kept(kept)] if (kept := sum(each.name in spares for each in self.hosts)) else []
        if drained:
            at, first = min((at, name) for name, at in drained.items())
            more = f" and {len(drained) - 1} more" if len(drained) > 1 else ""
            words.append(f"{first}{more} is drained from {time_of_day(at)} on, before the job is expected to end")
        if reserved := self.reserved_before(job):
            words.append(self._reserved_in_words(reserved))
        return "".join(f"; {each}" for each in words)

    def _reserved_in_words(self, reserved: dict[str, Reservation]) -> str:
        assert self.now is not None
        first, each = min(reserved.items(), key=lambda item: (item[1].start, item[0]))
        more = f" and {len(reserved) - 1} more" if len(reserved) > 1 else ""
        if each.start <= self.now.wall:
            return f"{first}{more} is reserved until {moment(each.end, self.now)} (reservation {each.name})"
        at = f"{moment(each.start, self.now)} on (reservation {each.name})"
        return f"{first}{more} is reserved from {at}, before the job is expected to end"


_NONE_BEGUN = Begun([], frozenset())


def own_words(words: str, own: str) -> str:
    """Words for jobs that ask the same, of the hosts that they may have: ``own`` are reservations for such jobs."""
    return f"{words} of {own}" if own else words
