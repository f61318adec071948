"""Preemption: SPOT jobs give way to a job ahead of them that fits nowhere otherwise.

To a STANDARD job any SPOT job behind it gives way, at once; to a SPOT job those that have started out of turn (their
GPUs are on loan), once they had time to get something done. Stopped are those of the lowest priority, of these the
ones that lose least, then the youngest, and none that needn't be; a job that asked for a warning gets it first. They
wait again, behind the one that they gave way to: only jobs that are served after it give way, so none can chase each
other off a host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from holdfast_controller.core.lifecycle.attempts import give_way, unsaved_s
from holdfast_controller.core.lifecycle.warning_signal import gives_notice
from holdfast_controller.core.model.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.scheduling.placement import Plan, Wait, may_have, plan_job
from holdfast_controller.core.step.step import Step

_SINGLES = 64
"""Candidates of which each is tried alone."""

Limit = Callable[[HostCapacity, Host], HostCapacity]
"""The part of a host's free capacity that a job may have; may change what it is given."""


@dataclass(frozen=True)
class Room:
    """Hosts on which a job will fit soon: once ``victims`` have given way, and all that are stopping are gone."""

    hosts: frozenset[str]
    victims: tuple[str, ...] = ()


def stop_victims(step: Step, job: Job, room: Room) -> None:
    """Preempt the SPOT jobs that give way to ``job``."""
    for name in room.victims:
        victim = step.cluster.jobs[name]
        if not gives_notice(step, victim, EndReason.PREEMPTED, Related(job=job.id)):
            give_way(step, victim, Related(job=job.id))


def find_room(
    cluster: Cluster, job: Job, hosts: list[Host], now: Now, limit: Limit = lambda left, _: left
) -> Room | None:
    """The room that is being made, or can be, for a job that fits nowhere now; None where there is none."""
    trial = Trial(job, may_have(job.gang, hosts), _leaving(cluster), limit)
    coming = trial.plan(())
    if isinstance(coming, Plan):
        return Room(_hosts(coming))
    victims = [victim for victim in candidates(cluster, job, now) if trial.is_there(victim.id)]
    if not victims or not trial.fits([victim.id for victim in victims]):
        return None
    chosen = tuple(victim.id for victim in fewest(trial, victims))
    found = trial.plan(chosen)
    assert isinstance(found, Plan)
    return Room(_hosts(found), chosen)


def _hosts(plan: Plan) -> frozenset[str]:
    return frozenset(place.host for place in plan.places)


def candidates(cluster: Cluster, job: Job, now: Now) -> list[Job]:
    """SPOT jobs that may give way to ``job``, those first that are stopped first."""
    held = (cluster.jobs[name] for name in cluster.holdings.gpus_by_job)
    found = [other for other in held if _may_give_way(other) and _gives_way_to(cluster, other, job)]

    def cost(victim: Job) -> tuple[int, float, float, int]:
        unsaved = max(victim.gang.gpus, 1) * unsaved_s(cluster, victim, now)
        since = victim.placement.running_since
        return victim.gang.priority, unsaved, -(since if since is not None else float("inf")), -victim.number

    return sorted(found, key=cost)


def _may_give_way(job: Job) -> bool:
    return (
        job.gang.strategy is Strategy.SPOT
        and not job.stopping
        and job.pause_due is None
        and job.leave is None
        and not job.terminal
        and job.unreconciled is None
    )


def _gives_way_to(cluster: Cluster, victim: Job, job: Job) -> bool:
    """Whether ``job`` is ahead of a SPOT job that runs, and may stop it now."""
    if (True, -victim.gang.priority, True, victim.number) <= job.turn:
        return False
    return job.gang.strategy is not Strategy.SPOT or loan_is_due(cluster, victim)


def loan_is_due(cluster: Cluster, job: Job) -> bool:
    """Whether a job's GPUs are on loan, and have been for long enough."""
    return job.loan is not None and cluster.elapsed_loans.get(job.id) == job.attempt


def _leaving(cluster: Cluster) -> frozenset[str]:
    """Ids of jobs that are being stopped, or soon will be, and reserve nothing: their shares are about to be free."""
    jobs = (cluster.jobs[name] for name in cluster.holdings.gpus_by_job)
    return frozenset(
        j.id
        for j in jobs
        if _gives_way(j) or (j.stopping and not j.reserved and not cluster.runtime_of(j.id).stuck)
    )


def _gives_way(job: Job) -> bool:
    return job.leave is not None and job.leave.end_reason is EndReason.PREEMPTED


@dataclass
class Trial:
    """Checks whether a job would fit if some others were gone."""

    job: Job
    hosts: list[Host]
    gone: frozenset[str]
    """Jobs that are taken as gone in any case."""
    limit: Limit
    _on_host: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _capacities: dict[tuple[str, frozenset[str]], HostCapacity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for host in self.hosts:
            self._on_host[host.name] = {key.rpartition("/")[0] for key in host.allocations}

    def is_there(self, job_id: str) -> bool:
        """Whether that job holds anything on these hosts."""
        return any(job_id in there for there in self._on_host.values())

    def fits(self, without: Collection[str]) -> bool:
        """Whether the job fits without those jobs."""
        return isinstance(self.plan(without), Plan)

    def plan(self, without: Collection[str]) -> Plan | Wait:
        """Its placement without those jobs."""
        absent = self.gone.union(without)
        return plan_job(self.job, self.hosts, lambda host, own: self._capacity(host, absent, own))

    def _capacity(self, host: Host, absent: frozenset[str], own: frozenset[str]) -> HostCapacity:
        here = frozenset(name for name in self._on_host[host.name] if name in absent)
        known = self._capacities.get((host.name, here))
        if known is None:
            gone = {key for key in host.allocations if key in own or key.rpartition("/")[0] in here}
            known = self._capacities[host.name, here] = self.limit(capacity_of(host, frozenset(gone)), host)
        return known.copy()


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
