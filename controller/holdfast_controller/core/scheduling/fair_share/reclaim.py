"""Reclaim: claims on guarantees (see ``guarantees``) are served, before all other jobs that wait.

A claim takes what is free. Where that is not enough SPOT jobs give way to it at once, and borrowers once they have run
for as long as loans last, or before they run at all. As long as some are too young the claim waits for the room that it
can have soonest, which is booked for it: nothing else starts there. So the time at which it can have room never moves
away, and comes when those that ran when it began to wait are old enough, at the latest. Of the jobs that are by then
those give way that ``preempt`` chooses, with the warning that they asked for.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import field
from functools import cached_property

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.gang import Gang, Pool, Strategy
from holdfast_controller.core.model.hosts.capacity import HostCapacity
from holdfast_controller.core.model.hosts.host import Host, Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.expiry import note_wait
from holdfast_controller.core.scheduling.fair_share.guarantees import borrowers, claims
from holdfast_controller.core.scheduling.open_hosts import OpenHosts
from holdfast_controller.core.scheduling.place import place
from holdfast_controller.core.scheduling.placement import Plan, plan_job
from holdfast_controller.core.scheduling.preempt import Limit, Preemption, Room, fewest, may_be_stopped, may_claim
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

CLAIMS_IN_VAIN = 100
"""Claims for which no room was found in one pass, after which others wait for the next. One that could use a part of
the hosts counts as such a part: many that wait for hosts of their own keep none from being served."""
LEAST_IN_VAIN = 0.05
"""What the search for a claim takes that could use a single host, as a part of one that could use all."""
NO_VICTIMS, SPOT_ALONE = -2.0, -1.0
"""Before all times: when no job has to give way, and when only SPOT jobs have to."""


@dataclass
class Booked:
    """The places that waiting claims are about to have."""

    jobs: dict[str, None] = field(default_factory=dict)
    """In the order in which they are served."""
    places: dict[str, list[tuple[Pool, Place]]] = field(default_factory=dict)
    """By host."""

    def add(self, job: Job, plan: Plan) -> None:
        """Keep the places of a plan for a job."""
        self.jobs[job.id] = None
        for pool, each in zip(job.gang.seats, plan.places, strict=False):
            self.places.setdefault(each.host, []).append((pool, each))

    def limit(self, left: HostCapacity, host: Host) -> HostCapacity:
        """The part of a host's capacity ``left`` that is not booked."""
        booked = self.places.get(host.name)
        return left if booked is None else left.beside(booked)


@dataclass(frozen=True)
class Claimed:
    """The room that a claim can have soonest: in how many seconds, which jobs give way then, and where it is."""

    in_s: float
    victims: tuple[str, ...]
    plan: Plan


def serve_claims(step: Step, hosts: OpenHosts, preemption: Preemption, booked: Booked) -> None:
    """Place the jobs that have a claim, or have others give way to them; what they wait for is ``booked`` too."""
    look = _Look(step, hosts, preemption, booked)
    for job in claims(step.cluster, step.policies.quotas, step.now.wall):
        if look.in_vain < CLAIMS_IN_VAIN and job.id not in booked.jobs:
            look.serve(job)


@dataclass
class _Look:
    step: Step
    hosts: OpenHosts
    preemption: Preemption
    booked: Booked
    unplaceable: set[str] = field(default_factory=set)
    """Shapes of jobs that would fit nowhere even if all gave way that may."""
    in_vain: float = 0.0

    @cached_property
    def waits(self) -> dict[str, float]:
        return waits_of(self.preemption, self.step.policies.loan_s)

    def serve(self, job: Job) -> None:
        if self.hosts.shape(job) in self.unplaceable and not job.places:
            return
        free, limit = self.step.cluster.free_capacity, self.booked.limit
        hosts = self.hosts.of(job)
        found = plan_job(job, hosts, lambda host, own: limit(free.without(host, own), host))
        if isinstance(found, Plan):
            places = (*job.places, *found.places)
            place(self.step, job, found, why=f"within the guarantee of {job.gang.project}")
            self.preemption.placed(frozenset(each.host for each in places))
        elif job.gang.waits and may_claim(self.step.cluster, job):
            self._make_room(job, hosts)

    def _make_room(self, job: Job, hosts: list[Host]) -> None:
        found = room_for(job, self.preemption, hosts, self.waits, self.booked.limit)
        if found is None:
            self.unplaceable.add(self.hosts.shape(job))
            self.in_vain += max(self._part(job.gang), LEAST_IN_VAIN)
            return
        if job.over_quota:
            note_wait(self.step, job, "", "its quota suffices now; waits for hosts")
        self.booked.add(job, found.plan)
        if found.in_s > 0.0:
            self._look_again(job, found.in_s)
        elif found.victims:
            room = Room(frozenset(each.host for each in found.plan.places), found.victims)
            self.preemption.stop(self.step, job, room)

    def _part(self, gang: Gang) -> float:
        """The part of all hosts that a gang could use."""
        whole_of, pools = self.step.cluster.free_capacity.whole_of, [pool for _, pool in gang.choices]
        able = sum(any(map(whole_of(host).fits, pools)) for host in self.hosts.admitted(gang))
        return able / max(len(self.hosts.hosts), 1)

    def _look_again(self, job: Job, in_s: float) -> None:
        key, due = (JobTimer.CLAIM, job.id), self.step.now.mono_in(in_s)
        if self.step.timers.due.get(key, math.inf) > due:
            self.step.timers.set(key, due)


def waits_of(preemption: Preemption, loan_s: float) -> dict[str, float]:
    """By job that may give way to claims: in how many seconds; SPOT jobs before all others."""
    cluster, now = preemption.cluster, preemption.now
    borrowing, found = borrowers(cluster, preemption.leaving), dict[str, float]()
    for name in cluster.holdings.gpus_by_job:
        job, spot = cluster.jobs[name], cluster.jobs[name].gang.strategy is Strategy.SPOT
        if may_be_stopped(job) and (spot or name in borrowing):
            since = job.placement.running_since
            # A clock that was set back lets it run no longer than that from now on.
            left_s = 0.0 if since is None else min(max(since + loan_s - now.wall, 0.0), loan_s)
            found[name] = SPOT_ALONE if spot else left_s
    return found


def room_for(
    job: Job, preemption: Preemption, hosts: list[Host], waits: dict[str, float], limit: Limit
) -> Claimed | None:
    """The room that a claim can have soonest; None where there is none even if all jobs in ``waits`` give way."""
    trial = preemption.trial(job, hosts, limit)
    own = {
        name: wait_s for name, wait_s in waits.items() if name not in preemption.leaving and trial.is_there(name)
    }
    times = sorted({NO_VICTIMS, *own.values()})
    first = bisect_left(times, True, key=lambda time_s: trial.fits([name for name in own if own[name] <= time_s]))
    if first == len(times):
        return None
    jobs = [preemption.cluster.jobs[name] for name in own if own[name] <= times[first]]
    jobs.sort(key=lambda each: (each.gang.strategy is not Strategy.SPOT, preemption.cost(each)))
    victims = tuple(each.id for each in fewest(trial, jobs)) if jobs else ()
    found = trial.plan(victims)
    assert isinstance(found, Plan)
    return Claimed(max(times[first], 0.0), victims, found)
