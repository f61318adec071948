"""Projects that always have more work than a cluster holds, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
import random

from bench.fleet.reactor import QUIET

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

DAY_S = 86_400.0


class Play:
    """A cluster of equal hosts on which projects always have jobs that wait; each job runs as long as dice say."""

    def __init__(self, seed: int, half_life_s: float = DAY_S, hosts: int = 4) -> None:
        self.dice, self.at, self.count = random.Random(seed), 0.0, itertools.count()
        self.log: list[ev.Event] = []
        self.ends: list[tuple[float, str]] = []
        self.reactor = Reactor(Cluster(epoch=1), Policies(QUIET, b"k", usage_half_life_s=half_life_s))
        for number in range(hosts):
            gpus = tuple(Gpu(f"{number}-{i}", i, "NVIDIA H100", 1 << 30) for i in range(8))
            self.feed(st.HostConnected(f"h{number}", 1, "10.0.0.1", "b", "1", Inventory(64, 1 << 40, gpus)))

    @property
    def cluster(self) -> Cluster:
        return self.reactor.cluster

    def feed(self, incoming: st.Input) -> None:
        decision = self.reactor.step(incoming, Now(Mono(self.at), Wall(self.at + 1e6)))
        self.log += [entry.event for entry in decision.entries]
        for entry in decision.entries:
            if isinstance(entry.event, ev.JobPlaced):
                heapq.heappush(self.ends, (self.at + self.dice.uniform(600.0, 7200.0), entry.event.job_id))

    def fill(self, *projects: str) -> None:
        """Each of the projects has ten jobs waiting."""
        waiting = [self.cluster.jobs[name].gang.project for name in self.cluster.queue]
        for project in projects:
            for _ in range(10 - waiting.count(project)):
                name = f"{project}-{next(self.count)}"
                what = Gang((Pool(1, Task(("x",)), gpus=self.dice.choice([1, 2, 4])),), project=project)
                self.feed(st.JobSubmission(0, "ann", "", name, JobPlan(name, what, "{}")))

    def run(self, for_s: float, *projects: str) -> None:
        until = self.at + for_s
        self.fill(*projects)
        while self.ends and self.ends[0][0] < until:
            self.at, name = heapq.heappop(self.ends)
            job = self.cluster.jobs[name]
            self.feed(st.CancelAsked(0, "ann", name))
            told = WorkerReport(
                WorkerId(name, job.gang.members[0].name), job.attempt, job.generation, ReportedState.EMPTY, 0, 0
            )
            self.feed(st.WorkerReported(job.places[0].host, 1, told))
            self.fill(*projects)
        self.at = until

    def held(self) -> dict[str, list[tuple[float, float, int]]]:
        """By project, from the log alone: from when to when so many GPUs were held."""
        since: dict[str, tuple[float, int]] = {}
        found: dict[str, list[tuple[float, float, int]]] = {}
        for event in self.log:
            if isinstance(event, ev.JobPlaced):
                since[event.job_id] = event.at, sum(len(place.gpus) for place in event.places)
            elif isinstance(event, ev.WorkerEmptied):
                begin, gpus = since.pop(event.job_id)
                found.setdefault(event.job_id.partition("-")[0], []).append((begin, event.at, gpus))
        for name, (begin, gpus) in since.items():
            found.setdefault(name.partition("-")[0], []).append((begin, self.at + 1e6, gpus))
        return found

    def recounted_s(self, project: str, half_life_s: float) -> float:
        """What the project has used, by a sum over its stretches."""
        now, rate = self.at + 1e6, math.log(2) / half_life_s
        return sum(
            gpus * (math.exp((end - now) * rate) - math.exp((begin - now) * rate)) / rate
            for begin, end, gpus in self.held().get(project, [])
        )

    def gpu_s(self, project: str, since: float) -> float:
        """GPU time that it has held since then, undecayed."""
        return sum(max(end - max(begin, since + 1e6), 0.0) * gpus for begin, end, gpus in self.held()[project])
