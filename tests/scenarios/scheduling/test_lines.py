"""A pass looks at one job of each line and decides as if it had served them all, one by one.

Random queues are played twice: as they are, and with a pass that serves every job. The two logs are equal, to the last
event. Most jobs are alike, as in real queues; the others are each of their own kind. A failure names its seed.
"""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from dataclasses import replace

import pytest
from bench.fleet.reactor import QUIET

from holdfast._session.reports import ReportedState, WorkerId, WorkerReport
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Strategy, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.scheduling.backfill import Reservations
from holdfast_controller.core.scheduling.left_capacity import LeftCapacity
from holdfast_controller.core.scheduling.preempt import Preemption, Trial
from holdfast_controller.core.scheduling.queue_pass import _Look, place_queue
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.reservation_commands import ReservationAsked, ReservationDeletionAsked
from holdfast_controller.core.step.step import Policies, Step

QUEUES = int(os.environ.get("HOLDFAST_QUEUES", "12"))
"""Thousands after a change of the pass."""
GIB = 1 << 30
MODELS = ("NVIDIA H100", "NVIDIA A100")
QUOTAS = {"vision": Quota(gpus=6, running_jobs=3), "user/bob": Quota(gpus=4)}


class Play:
    """A random queue: jobs come, end, are paused and resumed, hosts are cordoned and reserved, and quotas change."""

    def __init__(self, seed: int) -> None:
        self.dice, self.at, self.log = random.Random(seed), 0.0, list[ev.Event]()
        self.policies = Policies(
            QUIET,
            b"k",
            quotas=self.dice.choice([{}, {}, QUOTAS]),
            backfill=self.dice.choice(list(Backfill)),
            loan_s=100.0,
        )
        self.reactor = Reactor(Cluster(epoch=1), self.policies)
        self.hosts = [f"h{number}" for number in range(self.dice.randrange(2, 6))]
        for name in self.hosts:
            model = self.dice.choice(MODELS)
            gpus = tuple(Gpu(f"{name}-{i}", i, model, GIB) for i in range(self.dice.choice([2, 4, 8])))
            self.step(st.HostConnected(name, 1, "10.0.0.1", "b", "1", Inventory(16, 64 * GIB, gpus)))
        usual = [self.gang() for _ in range(self.dice.randrange(2, 5))]
        for number in range(40):
            self.at += self.dice.choice([0.0, 0.0, 1.0, 30.0])
            self.submit(f"j{number:02}", self.dice.choice(usual) if self.dice.random() < 0.8 else self.gang())
            if self.dice.random() < 0.5:
                self.happen()
        for _ in range(30):
            self.at += self.dice.choice([1.0, 30.0, 300.0])
            self.happen()

    def gang(self) -> Gang:
        dice, gpus = self.dice, self.dice.choice([0, 1, 1, 2, 4])
        model = dice.choice(["", "", *MODELS]) if gpus else ""
        return Gang(
            (
                Pool(
                    dice.choice([1, 1, 2, 3]), Task(("x",)), gpus=gpus, gpu_type=model, cpus=dice.choice([0, 1, 4])
                ),
            ),
            strategy=Strategy.SPOT if dice.random() < 0.3 else Strategy.STANDARD,
            priority=dice.choice([1, 1, 1, 2]),
            project=dice.choice(["default", "vision"]),
            waits=dice.random() > 0.1,
            selector=HostSelector(avoid=frozenset({"h0"})) if dice.random() < 0.2 else HostSelector(),
        )

    def submit(self, name: str, gang: Gang) -> None:
        gang = replace(gang, expected_s=self.dice.choice([0.0, 60.0, 600.0, 6000.0]))
        self.step(st.JobSubmission(0, self.dice.choice(["ann", "bob"]), "", name, JobPlan(name, gang, "{}")))

    def happen(self) -> None:
        """One of the things that may change what starts."""
        jobs = self.reactor.cluster.jobs
        placed = [job.id for job in jobs.values() if job.places and not job.terminal and not job.stopping]
        live = [job.id for job in jobs.values() if not job.terminal and job.outcome is None]
        match self.dice.randrange(14):
            case 0:
                self.step(st.CordonAsked(0, "root", self.dice.choice(self.hosts), ""))
            case 1 | 2:
                self.step(st.UncordonAsked(0, "root", self.dice.choice(self.hosts)))
            case 3:
                self.step(st.PoliciesChanged(self.policies))
            case 4 if live:
                self.step(st.PauseAsked(0, "ann", self.dice.choice(live)))
            case 5 if live:
                self.step(st.ResumeAsked(0, "ann", self.dice.choice(live)))
            case 6 | 7:
                self.step(st.TimePassed())
            case 12:
                start, project = self.dice.choice([0.0, 600.0]), self.dice.choice(["", "vision"])
                what = {
                    "project": project,
                    "user": "" if project else "bob",
                    "selector": HostSelector(),
                    "count": 1,
                }
                end = Wall(self.at + 1e6 + start + 3000.0)
                self.step(ReservationAsked(0, Reservation("r", start=Wall(self.at + 1e6 + start), end=end, **what)))  # type: ignore[arg-type]
            case 13:
                self.step(ReservationDeletionAsked(0, "root", "r"))
            case _ if placed:
                self.step(st.CancelAsked(0, "ann", self.dice.choice(placed)))
            case _:
                pass

    def step(self, incoming: st.Input) -> None:
        decision = self.reactor.step(incoming, Now(Mono(self.at), Wall(self.at + 1e6)))
        self.log += [entry.event for entry in decision.entries]
        for entry in decision.entries:
            match entry.event:
                case ev.JobPlaced(job_id=name):
                    self.report(name, ReportedState.PREPARED)
                    self.report(name, ReportedState.RUNNING)
                case ev.AttemptEnded(job_id=name) | ev.JobEnding(job_id=name):
                    self.report(name, ReportedState.EMPTY)
                case _:
                    pass

    def report(self, name: str, state: ReportedState) -> None:
        job = self.reactor.cluster.jobs[name]
        for place, member in zip(job.places, job.gang.members, strict=False):
            pids = tuple((rank, 1000 + rank) for rank in member.ranks) if state is ReportedState.RUNNING else ()
            worker = WorkerId(name, member.name)
            told = WorkerReport(worker, job.attempt, job.generation, state, 20000, 21000, shim_pid=1, pids=pids)
            self.step(st.WorkerReported(place.host, 1, told))


@pytest.mark.parametrize("seed", range(QUEUES))
def test_lines_change_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Play(seed).log
    monkeypatch.setattr(_Look, "_settle", lambda look, job: None)
    monkeypatch.setattr(_Look, "passes_over", lambda look, job, line: False)
    assert Play(seed).log == log


@pytest.mark.parametrize("seed", range(QUEUES))
def test_what_a_pass_does_not_look_at_changes_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Play(seed).log
    monkeypatch.setattr(LeftCapacity, "fitting", lambda left, gang, hosts: list(hosts))
    monkeypatch.setattr(Reservations, "keeps_enough_everywhere", lambda *_: False)
    monkeypatch.setattr(Preemption, "may_find_any_on", lambda *_: True)
    monkeypatch.setattr(Trial, "narrow", lambda *_: None)
    assert Play(seed).log == log


@pytest.mark.parametrize("mode", list(Backfill))
def test_a_pass_leaves_nothing_that_refers_to_itself(mode: Backfill) -> None:
    """It would stay until Python looks for cycles, and that takes a large controller tenths of a second."""
    for seed in range(3):
        play = Play(seed)
        play.reactor.settings = play.reactor.policies = replace(play.policies, backfill=mode)
        step = Step(
            play.reactor.cluster, play.reactor.policies, play.reactor.timers, Now(Mono(play.at), Wall(play.at))
        )
        gc.collect()
        gc.disable()
        try:
            place_queue(step)
            del step
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_the_queues_hold_much_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    seen: Counter[str] = Counter()
    plain = _Look.passes_over

    def passes_over(look: _Look, job: Job, line: str) -> bool:
        found = plain(look, job, line)
        seen["passed over"] += found
        seen["over a quota"] += found and job.over_quota
        return found

    monkeypatch.setattr(_Look, "passes_over", passes_over)
    for seed in range(12):
        for event in Play(seed).log:
            seen[type(event).__name__] += 1
            seen["loan"] += isinstance(event, ev.JobPlaced) and bool(event.loan_of)
            seen["ahead"] += isinstance(event, ev.JobPlaced) and bool(event.ahead_of)
    wanted = (
        "passed over",
        "over a quota",
        "ReservationMade",
        "JobPlaced",
        "loan",
        "ahead",
        "AttemptEnded",
        "JobPaused",
        "JobQueued",
        "PlacementTried",
    )
    assert all(seen[what] > 1 for what in wanted), seen


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that takes the first of a kind that waits for all of it, the shorter ones too, starts too few."""
    for seed in range(20, 60):
        right = Play(seed).log
        with monkeypatch.context() as fault:
            fault.setattr(_Look, "_settle", lambda look, job: look.settled.add(job.gang.kind))
            if Play(seed).log != right:
                return
    pytest.fail("no queue tells the two apart")
