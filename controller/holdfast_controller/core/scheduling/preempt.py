"""Preemption: SPOT jobs give way to a job at the head of the queue that fits nowhere otherwise.

Stopped are the youngest, and none that needn't be; a job that asked for a warning gets it first. They wait again,
behind the one that they gave way to: only jobs that are served after it give way, so two can't chase each other off a
host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from holdfast_controller.core.lifecycle.attempts import give_way
from holdfast_controller.core.lifecycle.warning_signal import gives_notice
from holdfast_controller.core.model.capacity import HostCapacity, capacity_of
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.host import Host
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.scheduling.placement import Plan, may_have, plan_job
from holdfast_controller.core.step.step import Step

_SINGLES = 64
"""Candidates of which each is tried alone."""


def make_room(step: Step, job: Job, hosts: list[Host]) -> None:
    """Preempt SPOT jobs if ``job`` then fits on ``hosts``, together with jobs that are stopping already."""
    if job.gang.strategy is Strategy.SPOT:
        return
    for name in would_give_way(step.cluster, job, hosts):
        victim = step.cluster.jobs[name]
        if not gives_notice(step, victim, EndReason.PREEMPTED, Related(job=job.id)):
            give_way(step, victim, Related(job=job.id))


def would_give_way(cluster: Cluster, job: Job, hosts: list[Host]) -> list[str]:
    """Ids of the SPOT jobs whose preemption makes room for ``job``; none where it fits without, or not even with it."""
    trial = Trial(job, may_have(job.gang, hosts), _leaving(cluster))
    victims = [victim for victim in _young_first(cluster, job) if trial.is_there(victim.id)]
    if not victims or trial.fits(()) or not trial.fits([victim.id for victim in victims]):
        return []
    return [victim.id for victim in fewest(trial, victims)]


def _young_first(cluster: Cluster, job: Job) -> list[Job]:
    """SPOT jobs that are placed and would be served after ``job``, the youngest first."""
    held = (cluster.jobs[name] for name in cluster.holdings.gpus_by_job)
    found = [
        other
        for other in held
        if other.gang.strategy is Strategy.SPOT
        and not other.stopping
        and other.pause_due is None
        and other.leave is None
        and not other.terminal
        and other.unreconciled is None
        and (True, -other.gang.priority, True, other.number) > job.turn
    ]
    return sorted(found, key=lambda j: (j.placement.running_since or float("inf"), j.number), reverse=True)


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
        absent = self.gone.union(without)
        return isinstance(plan_job(self.job, self.hosts, lambda host, own: self._capacity(host, absent, own)), Plan)

    def _capacity(self, host: Host, absent: frozenset[str], own: frozenset[str]) -> HostCapacity:
        here = frozenset(name for name in self._on_host[host.name] if name in absent)
        known = self._capacities.get((host.name, here))
        if known is None:
            gone = {key for key in host.allocations if key in own or key.rpartition("/")[0] in here}
            known = self._capacities[host.name, here] = capacity_of(host, frozenset(gone))
        return known.copy()


def fewest(trial: Trial, victims: list[Job]) -> list[Job]:
    """A minimal part of ``victims`` that is enough, the first ones if there is a choice; all together must be."""
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
        alone = next((victim for victim in victims[:_SINGLES] if trial.fits([victim.id])), None)
        return chosen if alone is None else [alone]
    return chosen
