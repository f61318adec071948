"""Hosts that are open to a job: not the spares that are for others, and none that is drained before it ends.

A drain that is planned to begin within a day keeps off its host all jobs that are expected to run into it, by the
estimates of ``model.run_times``: what they have declared or learned, at most their timeout. SPOT jobs may have the host
until then, and jobs that hold places there keep them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from holdfast_controller.core.model.clock import NEVER, Now, Wall, time_of_day
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.spares import closed_to, spares_kept
from holdfast_controller.core.model.job import Job

AHEAD_S = 86_400.0
"""Drains that begin later keep nothing off: a job that starts so long before has had its use of the host."""


def ends_at(cluster: Cluster, job: Job, now: Now) -> Wall:
    """The expected end of a waiting job that starts now."""
    return now.wall_in(max(cluster.run_times.estimate(job, job.ran_s).seconds - job.ran_s, 0.0))


class OpenHosts:
    """The hosts that take work at one moment, and which of them each job may have."""

    def __init__(self, cluster: Cluster, hosts: list[Host], now: Now | None) -> None:
        self.cluster, self.hosts, self.now = cluster, hosts, now
        self.drains: dict[str, Wall] = {}
        """By host: when a drain begins that is planned."""
        for host in hosts if now is not None else ():
            plan = host.maintenance
            if plan is None or not plan.drain or plan.begun or now is None:
                continue
            if plan.start <= now.wall_in(AHEAD_S):
                self.drains[host.name] = plan.start

    @cached_property
    def no_spares(self) -> list[Host]:
        """The hosts that are no spares."""
        spares = self.cluster.spares
        return [host for host in self.hosts if host.name not in spares] if spares else self.hosts

    def of(self, job: Job, hosts: list[Host] | None = None) -> list[Host]:
        """The part of ``hosts``, or of all, that is open to a job."""
        closed, hosts = self.closed_to(job), self.hosts if hosts is None else hosts
        return [host for host in hosts if host.name not in closed] if closed else hosts

    def closed_to(self, job: Job) -> Collection[str]:
        """The hosts that a job may have nothing new of."""
        spares = closed_to(self.cluster.spares, job)
        return self.drained_before(job).keys() | spares if self.drains else spares

    def drained_before(self, job: Job) -> dict[str, Wall]:
        """By host: when a drain begins before a job that starts now is expected to end."""
        if not self.drains or self.now is None or job.gang.strategy is Strategy.SPOT:
            return {}
        until, own = ends_at(self.cluster, job, self.now), {job.places[index].host for index in job.reserved}
        return {name: at for name, at in self.drains.items() if at < until and name not in own}

    def last_drain(self, job: Job) -> Wall:
        """The last time before which a job would have to end to have one more of the hosts; ``NEVER`` for none."""
        return max(self.drained_before(job).values(), default=NEVER)

    def why_closed(self, job: Job) -> str:
        """Which hosts a job may not have, after a semicolon; empty where all are open to it."""
        drained = self.drained_before(job)
        spares = closed_to(self.cluster.spares, job)
        words = [spares_kept(kept)] if (kept := sum(each.name in spares for each in self.hosts)) else []
        if drained:
            at, first = min((at, name) for name, at in drained.items())
            more = f" and {len(drained) - 1} more" if len(drained) > 1 else ""
            words.append(f"{first}{more} is drained from {time_of_day(at)} on, before the job is expected to end")
        return "".join(f"; {each}" for each in words)
