"""The projected starts that one pass over the queue keeps: of the first job that waits for each part of the hosts.

A job behind them may have free hosts if it delays none of these starts. What a waiting job could use that is overdue is
kept for it whole, as ``backfill`` has it. So, at first, is that of a job whose start can't be projected, since it needs
a host that is lost or under repair: the longer that has been so, the longer the jobs that pass (``PASSES``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.open_hosts import OpenHosts, ends_at
from holdfast_controller.core.scheduling.placement import Plan, may_have
from holdfast_controller.core.scheduling.preempt import LATE_S, Preemption, overdue_at
from holdfast_controller.core.scheduling.projections.expected_ends import Ends
from holdfast_controller.core.scheduling.projections.projected_start import Outlook, Start
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

MOST_LOOKED_AT = 30_000
"""Hosts that one pass looks at for projected starts, each once for a plan; then what waits is kept whole."""
MOST_ALIKE = 8
"""Jobs of one shape that are looked at; what the last of them and those behind it could use is kept whole."""
PASSES = 24.0
"""Jobs that are expected to end within so many times as long as a start could not be projected pass the job."""
LOOK_S = 60.0
"""The shortest time until more may pass it."""
MOST_STARTS = 8
"""Starts that are kept in one pass; what jobs further back could use is kept for them whole."""
ALWAYS = Wall(math.inf)


@dataclass
class _Kept:
    """The projected start of a waiting job, on ``places`` unless others take those and leave it some as good."""

    job: Job
    at: Wall
    places: tuple[Place, ...]
    outlook: Outlook


@dataclass
class KeptStarts:
    """Found when they are first asked for, since most passes find no free host for anyone behind."""

    step: Step
    open_hosts: OpenHosts
    preemption: Preemption
    whole: Reservations = field(init=False)
    """What is kept for jobs without a projected start that no one passes."""
    _unknown: Reservations = field(init=False)
    """The same for those whose start can't be projected."""
    passable: Wall = ALWAYS
    """Jobs that are expected to end by then pass all of the latter."""
    _outlooks: list[Outlook] = field(default_factory=list)
    _waiting: list[Job] = field(default_factory=list)
    """Jobs that wait, of which some may yet have a projected start."""
    _alike: Counter[str] = field(default_factory=Counter)
    """By shape: how many of these were noted in all."""
    _last: dict[str, Job] = field(default_factory=dict)
    """By shape: the newest of them."""
    _kept: list[_Kept] = field(default_factory=list)
    _imminent: list[tuple[Job, Start]] = field(default_factory=list)
    """Jobs that start once others are gone that are stopping."""
    awaited: set[str] = field(default_factory=set)
    """Hosts of those that start as soon as all that are stopping are gone: for them alone."""
    claimed: set[str] = field(default_factory=set)
    """No job passes for good on these: hosts of those that would fit now if others gave way to them, and all that those
    which are overdue may start on by the time that is projected."""
    _headed: Reservations = field(init=False)
    """What those could use that have a projected start, or ``whole`` hosts."""
    _covered: set[str] = field(default_factory=set)
    """Shapes of jobs that could use nothing else."""
    _ends: Ends | None = None
    """As of the event ``_known_at``."""
    _known_at: int = 0

    def __post_init__(self) -> None:
        self.whole, self._headed = self.open_hosts.reservations(), self.open_hosts.reservations()
        self._unknown = self.open_hosts.reservations()

    @property
    def all_hosts(self) -> list[Host]:
        """The hosts that a waiting job may be projected on."""
        return self.open_hosts.no_spares

    def waits(self, job: Job) -> None:
        """A job was served, and waits for hosts."""
        if self.counts(job):
            self._waiting.append(job)
            self._alike[shape := self.open_hosts.shape(job)] += 1
            self._last[shape] = job

    def leave_out(self, job: Job) -> None:
        """No start is kept for jobs of this shape: no host that has joined is theirs."""
        self._covered.add(self.open_hosts.shape(job))

    def counts(self, job: Job) -> bool:
        """Whether a start may yet be projected for a job of that shape."""
        shape = self.open_hosts.shape(job)
        return shape not in self._covered and self._alike[shape] < MOST_ALIKE

    @property
    def spent(self) -> bool:
        """Whether the pass has looked at so many hosts that no further job is projected, or passes another."""
        return sum(outlook.looked_at for outlook in self._outlooks) >= MOST_LOOKED_AT

    @property
    def hosts(self) -> set[str]:
        """Hosts that the starts take."""
        return {place.host for kept in self._kept for place in kept.places}

    def project(self) -> None:
        """Find the starts of those that were served by now."""
        for job in self._waiting:
            if self.open_hosts.shape(job) in self._covered:
                continue
            closed = self.open_hosts.reserved_before(job)
            if not self._headed.would_change(job.gang, self.all_hosts, closed):
                self._covered.add(self.open_hosts.shape(job))
                continue
            outlook = self._outlook(job)
            may_be_kept = len(self._kept) < MOST_STARTS and not self.spent and not self._is_last(job)
            start = outlook.of_one(job, self.step.now.wall) if may_be_kept else None
            if start is not None and start.at <= self.step.now.wall and self._delays(job, start):
                # It would fit if it were first: it is to start beside those that are.
                outlook = self._outlook(job, beside_kept=True)
                start = outlook.of_one(job, self.step.now.wall)
            if start is not None and start.at <= self.step.now.wall:
                self._imminent.append((job, start))
                self._claim(job, {place.host for place in start.places})
                continue
            self._covered.add(self.open_hosts.shape(job))
            self._headed.reserve(job.gang, self.all_hosts, closed)
            if start is None:
                kept = self._passed_in_time(job) if may_be_kept else self.whole
                kept.reserve(job.gang, self.all_hosts, closed)
                continue
            self.step.cluster.unprojected.pop(job.id, None)
            if self._is_overdue(job, start):
                self.claimed.update(host.name for host in outlook.hosts)
            self._kept.append(_Kept(job, start.at, start.places, outlook))
        self._waiting = []

    def _passed_in_time(self, job: Job) -> Reservations:
        """The reservations for a job whose start can't be projected: some pass it, and more as time goes by."""
        now = self.step.now
        waited_s = now.mono - self.step.cluster.unprojected.setdefault(job.id, now.mono)
        self.passable = min(self.passable, now.wall_in(PASSES * waited_s))
        self.step.timers.set((JobTimer.OVERDUE, job.id), now.mono_in(max(LOOK_S, waited_s / 10)))
        return self._unknown

    def limit(self, until: Wall) -> Callable[[HostCapacity, Host], HostCapacity]:
        """The part of a host's free capacity that a job may have until then which passes those ahead of it."""
        if until <= self.passable:
            return self.whole.limit
        return lambda left, host: self._unknown.limit(self.whole.limit(left, host), host)

    def _claim(self, job: Job, names: set[str]) -> None:
        self.claimed |= names
        hosts = [host for host in self.all_hosts if host.name in names]
        if self.preemption.trial(job, hosts, lambda left, _: left).fits(()):
            self.awaited |= names

    def _is_last(self, job: Job) -> bool:
        """Whether no more of its shape are noted, though others may wait."""
        shape = self.open_hosts.shape(job)
        return self._alike[shape] >= MOST_ALIKE and job is self._last[shape]

    def _delays(self, job: Job, start: Start) -> bool:
        """Whether one of those that have a projected start would start later if a job had its places from now on."""
        if not self._kept:
            return False
        until = ends_at(self.step.cluster, job, self.step.now)
        return self.delayed_by(job, Plan(start.places), until) is not None

    def _outlook(self, job: Job, *, beside_kept: bool = False) -> Outlook:
        """The outlook of a job; ``beside_kept`` on the places of those that have a projected start once they end."""
        cluster, now = self.step.cluster, self.step.now
        if self._ends is None or self._known_at != cluster.sequence:
            self._ends, self._known_at = Ends(cluster, now, self.step.policies.loan_s), cluster.sequence
        hosts = self.open_hosts.with_absent
        hosts = hosts if job.gang.anywhere else may_have(job.gang, hosts)
        outlook = Outlook(self._ends.held(job), hosts, self.open_hosts.absences)
        for other, start in self._imminent:
            outlook.book(other.gang, start.places, ends_at(cluster, other, now))
        for kept in self._kept if beside_kept else ():
            lasts_s = ends_at(cluster, kept.job, now) - now.wall
            outlook.book(kept.job.gang, kept.places, kept.at + lasts_s)
        self._outlooks.append(outlook)
        return outlook

    def _is_overdue(self, job: Job, start: Start) -> bool:
        promised, now = self.step.cluster.promised, self.step.now
        if job.id not in promised:
            promised[job.id] = start.at
            if self.step.policies.backfill is Backfill.LOAN:
                # Just after, or it would not be overdue yet.
                due = now.mono_due(Wall(start.at + LATE_S + 1.0))
                self.step.timers.set((JobTimer.OVERDUE, job.id), due)
        return now.wall > overdue_at(self.step.cluster, job)

    def delayed_by(self, job: Job, found: Plan, until: Wall) -> Wall | None:
        """The first start that a job delays which holds these places until then; None where it delays none.

        Where it delays none its places are booked.
        """
        moved: list[tuple[_Kept, tuple[Place, ...]]] = []
        taken = {place.host for place in found.places}
        for kept in sorted(self._kept, key=lambda kept: kept.at):
            if until <= kept.at:
                continue
            kept.outlook.book(job.gang, found.places, until)
            if taken.isdisjoint(place.host for place in kept.places):
                moved.append((kept, kept.places))
            elif (other := kept.outlook.plan(kept.job, kept.at)) is not None:
                moved.append((kept, other.places))
            else:
                for booked in (kept, *(other for other, _ in moved)):
                    booked.outlook.cancel(job.gang, found.places)
                return kept.at
        for kept, places in moved:
            kept.places = places
        return None
