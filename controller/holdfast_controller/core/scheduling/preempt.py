"""Preemption: revocable jobs give way to a job ahead of them that fits nowhere otherwise.

To a STANDARD job any SPOT job behind it gives way, at once. Other jobs that have started out of turn (their GPUs are on
loan) give way once they had time to get something done, or as soon as the job ahead is overdue. Stopped are those of
the lowest priority, of these the ones that lose least, then the youngest, and none that needn't be; a job that asked
for a warning gets it first. They wait again, behind the one that they gave way to: only jobs that are served after it
give way, so none can chase each other off a host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from functools import cached_property

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.lifecycle.attempts import give_way, unsaved_s
from holdfast_controller.core.lifecycle.stop import end_if_done
from holdfast_controller.core.lifecycle.warning_signal import gives_notice
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.hosts.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.hosts.free_capacity import FreeCapacity
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.scheduling.fair_share.guarantees import guaranteed_loans
from holdfast_controller.core.scheduling.placement import Plan, Wait, may_have, plan_job
from holdfast_controller.core.step.step import Step

LATE_S = 300.0
"""So long after the start that was first projected for it a job is overdue: nothing passes it for good any more."""
_SINGLES = 64
"""Candidates of which each is tried alone."""

Limit = Callable[[HostCapacity, Host], HostCapacity]
"""The part of a host's free capacity that a job may have."""


@dataclass(frozen=True)
class Room:
    """Hosts on which a job will fit soon: once ``victims`` have given way, and all that are stopping are gone."""

    hosts: frozenset[str]
    victims: tuple[str, ...] = ()


@dataclass
class Preemption:
    """Preemption in one pass over the queue; what all its waiting jobs share is found once."""

    cluster: Cluster
    now: Now
    _capacities: dict[str, dict[frozenset[str], HostCapacity]] = field(default_factory=dict)
    """By host, and by the jobs that are taken as gone from it."""

    def find_room(self, job: Job, hosts: list[Host], limit: Limit = lambda left, _: left) -> Room | None:
        """The room that is being made, or can be, for a job that fits nowhere now; None where there is none."""
        if (coming := self.coming(job, hosts, limit)) is not None:
            return Room(_hosts(coming))
        trial = self.trial(job, hosts, limit)
        victims = [victim for victim in self.candidates(job) if trial.is_there(victim.id)]
        if not victims or not trial.fits([victim.id for victim in victims]):
            return None
        trial.narrow([victim.id for victim in victims])
        chosen = tuple(victim.id for victim in fewest(trial, victims))
        found = trial.plan(chosen)
        assert isinstance(found, Plan)
        return Room(_hosts(found), chosen)

    def coming(self, job: Job, hosts: list[Host], limit: Limit = lambda left, _: left) -> Plan | None:
        """The placement of a job once all that are stopping are gone; None where it doesn't fit or none is stopping."""
        found = self.trial(job, hosts, limit).plan(()) if self.leaving else None
        return found if isinstance(found, Plan) else None

    def may_find_any_on(self, gang: Gang, hosts: Iterable[Host]) -> bool:
        """Whether room might be found for a gang on ``hosts``: on one that it could use are jobs that may go."""
        loose = may_have(gang, (host for host in hosts if host.name in self._loose))
        whole_of = self.cluster.free_capacity.whole_of
        return any(whole_of(host).fits(pool) for host in loose for _, pool in gang.choices)

    @cached_property
    def _loose(self) -> frozenset[str]:
        """The hosts of jobs that are being stopped, or could be when the pass began."""
        jobs = (*self.by_cost, *map(self.cluster.jobs.whole.__getitem__, self.leaving))
        return frozenset(place.host for job in jobs for place in job.places)

    def trial(self, job: Job, hosts: list[Host], limit: Limit) -> Trial:
        """Finds whether a job would fit if others were gone, beside those that are stopping."""
        free = self.cluster.free_capacity
        return Trial(job, may_have(job.gang, hosts), self.leaving, free, limit, self._capacities)

    def candidates(self, job: Job) -> list[Job]:
        """Jobs that may give way to ``job``, those first that are stopped first."""
        return [
            other
            for other in self.by_cost
            if other.id not in self.guaranteed and gives_way_to(self.cluster, other, job, self.now)
        ]

    def stop(self, step: Step, job: Job, room: Room) -> None:
        """Preempt the jobs that give way to ``job``."""
        for name in room.victims:
            victim = step.cluster.jobs[name]
            if not end_if_done(step, victim) and not gives_notice(
                step, victim, EndReason.PREEMPTED, Related(job=job.id)
            ):
                give_way(step, victim, Related(job=job.id))
        self.leaving |= set(room.victims)
        self.by_cost = [other for other in self.by_cost if other.id not in room.victims]

    def placed(self, hosts: frozenset[str]) -> None:
        """Something was placed on these hosts."""
        for name in hosts:
            self._capacities.pop(name, None)

    @cached_property
    def may_find_any(self) -> bool:
        """Whether any job may give way in this pass: a revocable one runs, or a SPOT job waits."""
        running = (self.cluster.jobs.whole[name].revocable for name in self.cluster.holdings.gpus_by_job)
        return bool(self.cluster.queue.spot) or any(running)

    @cached_property
    def guaranteed(self) -> frozenset[str]:
        """Jobs on loan that stand in a guarantee by now: they give way to no job."""
        return guaranteed_loans(self.cluster)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Jobs that are being stopped, or soon will be, and reserve nothing: their shares are about to be free."""
        jobs = (self.cluster.jobs.whole[name] for name in self.cluster.holdings.gpus_by_job)
        return frozenset(
            j.id
            for j in jobs
            if _gives_way(j) or (j.stopping and not j.reserved and not self.cluster.runtime_of(j.id).stuck)
        )

    @cached_property
    def by_cost(self) -> list[Job]:
        """Jobs that could be stopped now, the cheapest first."""
        held = (self.cluster.jobs.whole[name] for name in self.cluster.holdings.gpus_by_job)
        return sorted((job for job in held if job.revocable and may_be_stopped(job)), key=self.cost)

    def cost(self, victim: Job) -> tuple[int, float, float, int]:
        """Sort key: who has the lowest is stopped first."""
        unsaved = max(victim.gang.gpus, 1) * unsaved_s(self.cluster, victim, self.now)
        since = victim.placement.running_since
        return victim.gang.priority, unsaved, -(since if since is not None else float("inf")), -victim.number

    @cached_property
    def serves_spot(self) -> bool:
        """Whether room may be found for a SPOT job: loans are due, or jobs that gave way are being stopped."""
        gave_way = (self.cluster.jobs.whole[name] for name in self.leaving)
        return any(job.last_end is EndReason.PREEMPTED or _gives_way(job) for job in gave_way) or any(
            loan_is_due(self.cluster, job) for job in self.by_cost
        )


def _hosts(plan: Plan) -> frozenset[str]:
    return frozenset(place.host for place in plan.places)


def may_be_stopped(job: Job) -> bool:
    """Whether a job that holds hosts is neither being stopped already, nor about to be."""
    return (
        not job.stopping
        and job.pause_due is None
        and job.leave is None
        and not job.terminal
        and job.unreconciled is None
    )


def gives_way_to(cluster: Cluster, victim: Job, job: Job, now: Now) -> bool:
    """Whether ``job`` is ahead of a revocable job that runs, and may stop it now."""
    if not goes_before(job, victim):
        return False
    return at_once(cluster, victim, job, now) or loan_is_due(cluster, victim)


def goes_before(job: Job, victim: Job) -> bool:
    """Whether ``job`` is ahead of a revocable job, as that will wait when it has given way."""
    return job.turn < (True, -victim.gang.priority, victim.gang.strategy is Strategy.SPOT, victim.number)


def at_once(cluster: Cluster, victim: Job, job: Job, now: Now) -> bool:
    """Whether ``job`` needn't give a revocable one any time: it is not SPOT as that is, or overdue."""
    if job.gang.strategy is Strategy.SPOT:
        return False
    return victim.gang.strategy is Strategy.SPOT or now.wall > overdue_at(cluster, job)


def overdue_at(cluster: Cluster, job: Job) -> float:
    """When a waiting job is overdue, by the start that was first projected for it; infinite where none was."""
    return cluster.promised.get(job.id, math.inf) + LATE_S


def may_claim(cluster: Cluster, job: Job) -> bool:
    """Whether a waiting job may have more than what is free for it in its turn."""
    return job.no_claim_before is None or cluster.elapsed_loans.get(job.id) == job.attempt


def loan_is_due(cluster: Cluster, job: Job) -> bool:
    """Whether a job's GPUs are on loan, and have been for long enough."""
    return job.loan is not None and cluster.elapsed_loans.get(job.id) == job.attempt


def _gives_way(job: Job) -> bool:
    return job.leave is not None and job.leave.end_reason is EndReason.PREEMPTED


@dataclass
class Trial:
    """Checks whether a job would fit if some others were gone."""

    job: Job
    hosts: list[Host]
    gone: frozenset[str]
    """Jobs that are taken as gone in any case."""
    free: FreeCapacity
    limit: Limit = lambda left, _: left
    capacities: dict[str, dict[frozenset[str], HostCapacity]] = field(default_factory=dict)
    """Found when they are asked for; trials of one pass share them."""

    def is_there(self, job_id: str) -> bool:
        """Whether that job holds anything on these hosts."""
        return any(job_id in self.free.jobs(host) for host in self.hosts)

    def fits(self, without: Collection[str]) -> bool:
        """Whether the job fits without those jobs."""
        return isinstance(self.plan(without), Plan)

    def narrow(self, without: Collection[str]) -> None:
        """Leave out the hosts on which no new worker would fit without those jobs, nor without fewer of them."""
        if self.job.places:
            return  # what it holds itself counts where it stays
        absent, gang = self.gone.union(without), self.job.gang
        pools = [*(pool for _, pool in gang.choices), *([gang.spare_pool] if gang.spares else [])]
        left = ((host, self._capacity(host, absent, frozenset())) for host in self.hosts)
        self.hosts = [host for host, capacity in left if any(map(capacity.fits, pools))]

    def plan(self, without: Collection[str]) -> Plan | Wait:
        """Its placement without those jobs."""
        absent = self.gone.union(without)
        return plan_job(self.job, self.hosts, lambda host, own: self._capacity(host, absent, own))

    def _capacity(self, host: Host, absent: frozenset[str], own: frozenset[str]) -> HostCapacity:
        here = absent & self.free.jobs(host)
        if own:
            gone = {key for job, key, _ in self.free.shares(host) if key in own or job in here}
            return self.limit(capacity_of(host, frozenset(gone)), host)
        if not here:
            return self.limit(self.free.capacity_of(host), host)
        known = self.capacities.setdefault(host.name, {})
        if here not in known:
            gone = {key for job, key, _ in self.free.shares(host) if job in here}
            known[here] = capacity_of(host, frozenset(gone))
        return self.limit(known[here], host)


def fewest(trial: Trial, victims: list[Job]) -> list[Job]:
    """A minimal part of ``victims`` that is enough, the first ones if there is a choice; all together must be.

    One alone is taken instead of several, unless its priority is higher than theirs.
    """
    low, high = 1, len(victims)
    while low < high:
        middle = (low + high) // 2
        if trial.fits([victim.id for victim in victims[:middle]]):
            high = middle
        else:
            low = middle + 1
    chosen = victims[:high]
    for victim in reversed(victims[:high]):
        others = [other for other in chosen if other is not victim]
        if trial.fits([other.id for other in others]):
            chosen = others
    if len(chosen) > 1:
        highest = max(victim.gang.priority for victim in chosen)
        equals = [victim for victim in victims[:_SINGLES] if victim.gang.priority <= highest]
        alone = next((victim for victim in equals if trial.fits([victim.id])), None)
        return chosen if alone is None else [alone]
    return chosen
