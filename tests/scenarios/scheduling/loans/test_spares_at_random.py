"""Random days of a cluster with spares: there never are fewer, but for a replacement or a host that is gone."""

from __future__ import annotations

import random

import pytest
from tests.scenarios.scheduling.loans.test_spares import cluster, long, submit

from holdfast_controller.core.events import JobPlaced
from holdfast_controller.core.lifecycle.other_hosts import takes_work
from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.hosts.spares import SpareRule
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.run_times import Backfill


class Life:
    """Random days of a cluster with spares, and a count of its spare hosts that is made apart from the core's."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kept = self.dice.choice([1, 1, 2])
        self.world = cluster(6, SpareRule("any", self.kept), backfill=self.dice.choice(list(Backfill)))
        self.number = self.replaced = 0

    def whole(self) -> set[str]:
        """Hosts in service on which nothing is that can't be taken back."""
        found = self.world.cluster
        return {
            name
            for name, host in found.hosts.items()
            if takes_work(found, host) and not any(not share.revocable for share in host.allocations.values())
        }

    def move(self) -> None:
        world, dice = self.world, self.dice
        before, since = self.whole(), len(world.log)
        out = {name for name, host in world.cluster.hosts.items() if not takes_work(world.cluster, host)}
        dice.choice([self.submit, self.submit, self.end, self.lose, self.back, self.quiet, self.fail])()
        events = world.log[since:]
        placed = [event for event in events if isinstance(event, JobPlaced)]
        moved = [event for event in placed if world.cluster.jobs[event.job_id].recoveries]
        self.replaced += len(moved)
        after = self.whole()
        gone = {n for n, host in world.cluster.hosts.items() if not takes_work(world.cluster, host)} - out
        if not moved and not gone:
            assert len(after) >= min(len(before), self.kept), [event.job_id for event in placed]

    def submit(self) -> None:
        self.number += 1
        strategy = self.dice.choice([Strategy.STANDARD, Strategy.STANDARD, Strategy.SPOT])
        what = long(self.dice.choice([1, 1, 2, 3]), gpus=self.dice.choice([1, 4]), strategy=strategy)
        name = f"job-{self.number}"
        submit(self.world, name, what)
        self.begin()

    def begin(self) -> None:
        for job in list(self.world.cluster.jobs.values()):
            reached = all(place.host in self.world.sessions for place in job.places)
            if job.state is JobState.PENDING and not job.launched and reached:
                self.world.run(job.id)

    def live(self) -> list[Job]:
        return [job for job in self.world.cluster.jobs.values() if not job.terminal and job.places]

    def fail(self) -> None:
        """A rank crashes, of a job all of which can be reached."""
        self.end(code=1)

    def end(self, code: int = 0) -> None:
        jobs = [job for job in self.live() if job.state is JobState.RUNNING]
        jobs = [job for job in jobs if all(place.host in self.world.sessions for place in job.places)]
        if jobs:
            job = self.dice.choice(jobs)
            for member in job.gang.members if not code else job.gang.members[:1]:
                self.world.exit(job.id, member.index, code)
        self.quiet()

    def quiet(self) -> None:
        """All that is being stopped on hosts that are reached has ended."""
        for job in self.live():
            for index in job.awaited if job.stopping else ():
                if job.places[index].host in self.world.sessions:
                    if not job.exits_now().get(index) and job.launched:
                        self.world.exit(job.id, index, "STOPPED:15")
                    if index in job.awaited:
                        self.world.report(job.id, index, "EMPTY")
        self.begin()

    def lose(self) -> None:
        reached = sorted(self.world.sessions)
        if len(reached) > 4:
            name = self.dice.choice(reached)
            self.world.hang_up(name)
            self.world.wait(80, beating=list(self.world.sessions))
        self.quiet()

    def back(self) -> None:
        lost = [name for name in sorted(self.world.cluster.hosts) if name not in self.world.sessions]
        if lost:
            self.world.join(self.dice.choice(lost))
        self.quiet()


@pytest.mark.parametrize("seed", range(30))
def test_no_day_of_a_cluster_leaves_fewer_spares_than_it_had_but_for_a_replacement(seed: int) -> None:
    life = Life(seed)
    for _ in range(80):
        life.move()
    assert life.number


def test_those_days_have_replacements() -> None:
    life = Life(3)
    for _ in range(80):
        life.move()
    assert life.replaced
