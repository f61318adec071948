"""What projects use and hold, and the hosts that jobs get, as oracles see it: by brute force."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import FEWEST, run_time_of

Check = Callable[[bool, str, str], None]
NAME, GUARANTEES, LIMITS, CLOSED = "22 shares", "23 guarantees", "24 limits", "24 closed hosts"
LOOKED_AHEAD_S = 86_400.0
"""Drains that begin later keep no job off."""

ROUNDING_S = 1e-3
"""By as much a leap of the clock may be wrong."""


@dataclass
class SharesOracle:
    """The oracle of one log: the use of each project, brought from each event to the next."""

    check: Check
    used_s: dict[str, float] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    at: float = 0.0
    backward: bool = False
    """The log's clock went back by less than a leap: from then on only the two folds are compared."""

    def take(self, event: ev.Event, whole: Cluster, restarted: Cluster) -> None:
        """Compare, after an event, the fold of all the log, the one from a snapshot on, and the sum."""
        self.check(
            whole.shares == restarted.shares,
            NAME,
            f"after a snapshot projects have used {restarted.shares} instead of {whole.shares}",
        )
        if isinstance(event, ev.ClockLeapt):
            self.at += event.by_s  # no time has passed in it
        self.backward |= event.at < self.at - ROUNDING_S
        lives = (event.at - self.at) * math.log(2) / whole.shares.half_life_s
        self.at = event.at
        for name in {*self.used_s, *self.held}:
            grown = self.held[name] * whole.shares.half_life_s / math.log(2) * (1.0 - math.exp(-lives))
            self.used_s[name] = self.used_s.get(name, 0.0) * math.exp(-lives) + grown
        self.held = Counter()
        for host in whole.hosts.values():
            for place, share in host.allocations.items():
                self.held[whole.jobs[place.rpartition("/")[0]].gang.project] += len(share.gpus)
        for name in () if self.backward else self.used_s:
            found = whole.shares.used_s(name, self.held[name], Wall(event.at))
            same = math.isclose(found, self.used_s[name], rel_tol=1e-6, abs_tol=0.01)
            self.check(same, NAME, f"{name} has used {found} GPU seconds, and held them for {self.used_s[name]}")

    def judge(self, victim: str, to: str, whole: Cluster) -> None:
        """A job gives way though it is not behind the other: that fits in its project's guarantee, and it in none."""
        held = Counter[str]()
        for host in whole.hosts.values():
            for place, share in host.allocations.items():
                held[place.rpartition("/")[0]] += len(share.gpus)

        def of(project: str, *, leaving: bool) -> int:
            jobs = (whole.jobs[name] for name in held)
            mine = [j for j in jobs if j.gang.project == project and j.gang.strategy is not Strategy.SPOT]
            gone = [j for j in mine if j.id != victim and (j.leave is not None or (j.stopping and not j.reserved))]
            return sum(held[j.id] for j in mine if leaving or j not in gone)

        loser, winner, guarantees = whole.jobs[victim], whole.jobs[to], whole.shares.guarantees
        whose = winner.gang.project
        claims, most = of(whose, leaving=True) - held[to] + winner.gang.gpus, guarantees.get(whose, 0)
        fits = winner.gang.gpus > 0 and winner.gang.strategy is not Strategy.SPOT and claims <= most
        self.check(fits, GUARANTEES, f"{victim} gives way to {to}, which comes to {claims} of {most}")
        if loser.gang.strategy is not Strategy.SPOT:
            has, own = of(loser.gang.project, leaving=False), guarantees.get(loser.gang.project, 0)
            self.check(has > own, GUARANTEES, f"{victim} gives way to {to}, and its project has {has} of {own}")


class LimitsOracle:
    """The oracle of one event: nobody gets a host that is another project's, or is closed, or more than a quota allows.

    Nothing is taken away for a reservation or a drain to come: a job may use the host of a spare of its own that it
    held before.
    """

    def __init__(self, check: Check, event: ev.Event, before: Cluster) -> None:
        self.check, self.event = check, event
        self.had: set[str] = set()
        self.held = 0
        """GPUs of its project before."""
        self.least_s = 0.0
        """What the job is expected to run yet, or less."""
        if isinstance(event, ev.JobPlaced | ev.JobSparesChanged):
            job = before.jobs[event.job_id]
            self.had = {place.host for place in (*job.places, *job.spares)}
            self.least_s = least_expected_s(before, job)
            self.held = before.holdings.gpus_of(job.gang.project)

    def judge(self, after: Cluster) -> None:
        """Look at what the event has changed."""
        event = self.event
        if not isinstance(event, ev.JobPlaced | ev.JobSparesChanged):
            return
        job = after.jobs[event.job_id]
        project, new = job.gang.project, {place.host for place in (*job.places, *job.spares)} - self.had
        for each in after.reservations.by_name.values():
            begun = each.start <= event.at < each.end
            if begun and each.project != project and job.gang.strategy is not Strategy.SPOT:
                taken = sorted(new & each.selector.hosts)
                self.check(not taken, LIMITS, f"{job.id} of {project} gets {taken}, which {each.name} has")
        if not job.gang.measures:
            self._judge_hosts(after, job, new)
        quota = after.shares.quotas.get(project)
        if quota is not None and quota.gpus is not None and job.gang.gpus:
            held = after.holdings.gpus_of(project) - _left_behind(after, job)
            # Spares that a job gives back may leave it with more than a quota that was lowered since.
            gave_back = isinstance(event, ev.JobSparesChanged) and held <= self.held
            fits = gave_back or held <= quota.gpus
            self.check(fits, LIMITS, f"{project} holds {held} GPUs of {quota.gpus} with {job.id}")

    def _judge_hosts(self, after: Cluster, job: Job, new: set[str]) -> None:
        """None of the hosts is closed, or will be before the job is expected to end, unless it gives way to all."""
        at = self.event.at
        for host in (after.hosts[name] for name in sorted(new)):
            self.check(host.takes_work, CLOSED, f"{job.id} gets {host.name}, which takes no work")
            plan = host.maintenance
            if plan is None or not plan.drain or plan.begun or job.gang.strategy is Strategy.SPOT:
                continue
            soon, over = plan.start <= at + LOOKED_AHEAD_S, at + self.least_s <= plan.start
            what = f"{job.id} runs for {self.least_s:.0f} s at least, and gets {host.name}"
            self.check(over or not soon, CLOSED, f"{what}, which is drained in {plan.start - at:.0f} s")


def least_expected_s(cluster: Cluster, job: Job) -> float:
    """The shortest that a job which starts now may be expected to run yet, by whatever may be known of others.

    What it declares is that; without, once there are enough runs to learn from, the shortest run of its project.
    """
    expected = job.gang.expected_s
    if not expected:
        known = (
            run_time_of(other) for other in cluster.jobs.whole.values() if other.gang.project == job.gang.project
        )
        runs = [ran_s for ran_s in known if ran_s is not None]
        expected = max(min(runs), 1.0) if len(runs) >= FEWEST else job.gang.timeout_s
    while expected <= job.ran_s:
        expected *= 2.0
    return max(min(expected, job.gang.timeout_s) - job.ran_s, 0.0)


def _left_behind(cluster: Cluster, job: Job) -> int:
    """GPUs that a job keeps taken on lost hosts which its workers had to leave: in its quota it counts once."""
    now = {place_key(job.id, index): place.host for index, place in enumerate((*job.places, *job.spares))}
    return sum(
        len(share.gpus)
        for host in cluster.hosts.values()
        for key, share in host.allocations.items()
        if key.rpartition("/")[0] == job.id and now.get(key) != host.name
    )
