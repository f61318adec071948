"""Whoever starts before jobs that are ahead of it in the queue delays none of them, whatever they all ask for.

Random queues on random hosts are played twice: as they are, and without one job that overtook others. Nobody that
it overtook may start later than in the world without it. A failure names its seed; run that one alone to repeat it.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest
from tests.scenarios.world import GIB

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.scheduling.backfill import Reservations, Reserved
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

MODELS = ("NVIDIA H100", "NVIDIA A100")


@dataclass
class Wish:
    """A job to come: when it is submitted, and how long it runs."""

    name: str
    at: float
    gang: Gang
    runs_s: float


@dataclass
class Story:
    """Random hosts, quotas and jobs."""

    hosts: dict[str, Inventory]
    quotas: dict[str, Quota]
    wishes: list[Wish]

    @classmethod
    def of(cls, seed: int) -> Story:
        dice = random.Random(seed)
        hosts = {}
        for number in range(dice.randrange(2, 6)):
            gpus, model = dice.choice([0, 2, 4, 8]), dice.choice(MODELS)
            found = tuple(Gpu(f"{number}-{i}", i, model, 80 * GIB) for i in range(gpus))
            hosts[f"host-{number}"] = Inventory(dice.choice([8, 16]), 64 * GIB, found)
        quotas = {"vision": Quota(gpus=dice.choice([4, 8]), running_jobs=dice.choice([None, 2]))}
        wishes = [
            Wish(f"j{n:02}", dice.choice([0.0, 0.0, dice.uniform(0, 50)]), _gang(dice), dice.uniform(1, 60))
            for n in range(24)
        ]
        return cls(hosts, dice.choice([{}, quotas]), sorted(wishes, key=lambda wish: wish.at))


def _gang(dice: random.Random) -> Gang:
    selector = HostSelector(avoid=frozenset({"host-0"})) if dice.random() < 0.2 else HostSelector()

    def pool() -> Pool:
        gpus = dice.choice([0, 0, 1, 2, 4])
        return Pool(
            dice.choice([1, 1, 2, 3]),
            Task(("x",)),
            gpus=gpus,
            gpu_type=dice.choice(["", *MODELS]) if gpus else "",
            cpus=dice.choice([0, 1, 2, 4]),
            selector=HostSelector(avoid=frozenset({"host-1"}))
            if dice.random() < 0.3 and not selector.avoid
            else None,
        )

    pools = (pool(), pool()) if dice.random() < 0.3 else (pool(),)
    return Gang(pools, project=dice.choice(["default", "vision"]), selector=selector, max_wait_s=0.0)


@dataclass
class Play:
    """A story played to its end: when each job started, and whom it overtook when it did."""

    story: Story
    without: str = ""
    now: float = 0.0
    started: dict[str, float] = field(default_factory=dict)
    overtook: dict[str, list[str]] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.runs_s = {wish.name: wish.runs_s for wish in self.story.wishes}
        self.reactor = Reactor(Cluster(epoch=1), Policies(secret_key=b"k", quotas=self.story.quotas))
        for name, has in self.story.hosts.items():
            self.step(st.HostConnected(name, 1, "10.0.0.1", "b", "1", has))
        wishes = [wish for wish in self.story.wishes if wish.name != self.without]
        while wishes or self.ends:
            if wishes and (not self.ends or wishes[0].at <= self.ends[0][0]):
                wish = wishes.pop(0)
                self.now = wish.at
                self.step(st.JobSubmission(0, "ann", "", wish.name, JobPlan(wish.name, wish.gang, "{}")))
            else:
                self.now, name = heapq.heappop(self.ends)
                self.end(name)

    def step(self, incoming: st.Input) -> None:
        queue = list(self.reactor.cluster.queue)
        decision = self.reactor.step(incoming, Now(Mono(self.now), Wall(self.now + 1e6)))
        for entry in decision.entries:
            if isinstance(entry.event, ev.JobPlaced):
                name = entry.event.job_id
                self.started[name] = self.now
                heapq.heappush(self.ends, (self.now + self.runs_s[name], name))
                place = queue.index(name) if name in queue else len(queue)
                self.overtook[name] = [other for other in queue[:place] if other in self.reactor.cluster.queue]

    def end(self, name: str) -> None:
        self.step(st.CancelAsked(0, "ann", name))
        job = self.reactor.cluster.jobs[name]
        for member in job.gang.members:
            report = WorkerReport(WorkerId(name, member.name), 1, 1, ReportedState.EMPTY)
            self.step(st.WorkerReported(job.places[member.index].host, 1, report))


@pytest.mark.parametrize("seed", range(60))
def test_nobody_is_delayed_by_a_job_behind_it(seed: int) -> None:
    story = Story.of(seed)
    played = Play(story)
    cluster = played.reactor.cluster
    assert not cluster.queue, "somebody never started"
    assert not cluster.holdings.by_holder
    for name, overtaken in played.overtook.items():
        # Whoever waits for its project's quota leaves hosts to other projects by intent, and may then take others.
        by_quota = story.quotas and any(cluster.jobs[other].gang.project == "vision" for other in overtaken)
        waited = [] if by_quota else overtaken
        if waited:
            other_world = Play(story, without=name)
            late = {n for n in waited if played.started[n] > other_world.started[n]}
            assert not late, f"{name} delayed {sorted(late)}"


def test_stories_hold_many_that_overtake() -> None:
    """Else the test above would prove nothing."""
    plays = [Play(Story.of(seed)) for seed in range(60)]
    overtaken = [len(others) for play in plays for others in play.overtook.values() if others]
    assert len(overtaken) > 100
    assert sum(any(play.overtook.values()) for play in plays) > 30


def test_first_in_the_queue_starts_when_it_would_if_nobody_ever_overtook(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = {seed: Play(Story.of(seed)) for seed in range(60)}

    def close_all(self: Reservations, gang: Gang, hosts: object, closed: object) -> bool:
        self.by_host = {f"host-{number}": Reserved(closed=True) for number in range(9)}
        return True

    monkeypatch.setattr(Reservations, "reserve", close_all)
    compared = 0
    for seed, play in plays.items():
        others = [name for names in play.overtook.values() for name in names]
        if not others:
            continue
        first = next(iter(play.overtook[n][0] for n in play.started if play.overtook[n]))
        strict = Play(Story.of(seed))
        assert not any(strict.overtook.values()) or play.story.quotas
        assert play.started[first] <= strict.started[first], f"seed {seed}: {first} is delayed"
        compared += 1
    assert compared > 30
