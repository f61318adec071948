"""Counts what happens, event by event as each becomes durable: a look at the event's type, and little more.

The state may be ahead of the event, so what is taken from it is only what an event leaves there for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast._daemon.metrics.series import Series
from holdfast._session.reports import ExitReason
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core import events as ev
from holdfast_controller.core.goodput.causes import payer_of
from holdfast_controller.core.lifecycle.recovery_phases import phases_of
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings, HostFact
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.measurements import Outcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import TERMINAL
from holdfast_controller.core.views import metric_families as fam

PHASES = ("detect", "diagnose", "stop", "start", "catch_up")


class Meter:
    """Counts events since the controller's start; ``series`` holds the metrics."""

    def __init__(self, cluster: Cluster) -> None:
        self.series = Series()
        self.gpu_ms: Counter[tuple[str, str]] = Counter()
        """Settled GPU time by category and payer, over the cluster's whole life."""
        self._cluster = cluster
        self._placed: dict[str, float] = {}
        """By job: when its attempt was placed, until its ranks are started."""
        self._freed: dict[str, float] = {}
        """By job that ran after others, or had to wait for its turn: when it was let in, until it is placed."""
        self._counters: dict[type[Any], Callable[[Any], None]] = {
            ev.JobSubmitted: lambda _: self.series.add(fam.JOBS_SUBMITTED),
            ev.DependencyEnded: self._on_let_in,
            ev.TurnCame: self._on_let_in,
            ev.JobPlaced: self._on_placed,
            ev.GangStarted: self._on_started,
            ev.WorkerStarted: lambda event: self._on_recovered(event.job_id, event.generation),
            ev.RestartDecided: self._on_restart,
            ev.AttemptEnded: self._on_attempt_ended,
            ev.CaughtUp: self._on_caught_up,
            ev.JobEnded: self._on_ended,
            ev.RankExited: lambda event: self.series.add(fam.RANK_EXITS, event.exit.reason.name),
            ev.LateExitFound: lambda _: self.series.add(fam.LATE_EXITS),
            ev.HangNoticed: lambda event: self.series.add(fam.HANG_NOTICES, event.rule.value),
            ev.HangJudged: lambda event: self._on_verdict(event.job_id, event.outcome),
            ev.HangOver: lambda event: self._on_verdict(event.job_id, HangOutcome.OVER),
            ev.CommonCauseNoticed: lambda event: self.series.add(
                fam.HANG_COMMON_CAUSES, by=float(bool(event.jobs))
            ),
            ev.HostLost: lambda _: self.series.add(fam.HOSTS_LOST),
            ev.HostMeasured: lambda event: self.series.add(fam.HOST_CHECKS, event.result.outcome.name),
            ev.HostRefused: lambda _: self.series.add(fam.HOST_REFUSALS),
            ev.WorkerFenced: lambda _: self.series.add(fam.PLACES_FENCED),
            ev.NotificationGivenUp: lambda _: self.series.add(fam.NOTIFICATIONS_GIVEN_UP),
        }
        self._declare()

    def take(self, event: ev.Event) -> None:
        """Count one event, which must be durable."""
        count = self._counters.get(type(event))
        if count is not None:
            count(event)

    def book(self, bookings: Bookings) -> None:
        """Count the GPU time that a commit has settled, and failures of hosts."""
        for each in bookings.hosts:
            if each.what is HostFact.REPAIR:
                self.series.observe(fam.HOST_REPAIR, (each.end - each.start) / 1000)
            elif each.what is not HostFact.UP:
                self.series.add(fam.HOST_FAILURES, each.what.value)
        for usage in bookings.usage:
            weight = 0 if usage.ranks else sum(seat.weight for seat in usage.members.values())
            if not weight:
                continue
            for key, ms in usage.ms.items():
                _, category, cause = key.split("|")
                self.gpu_ms[category, payer_of(cause).value] += ms * weight

    def _declare(self) -> None:
        """Export 0 for whatever has not happened yet, so that no series is absent."""
        for family in fam.COUNTED:
            if not family.labels:
                self.series.declare(family)
        for state in TERMINAL:
            self.series.declare(fam.JOBS_ENDED, state.name)
        for phase in PHASES:
            self.series.declare(fam.RECOVERY, phase)
        for reason in ExitReason:
            self.series.declare(fam.RANK_EXITS, reason.name)
        for kind in (HostFact.LOST, HostFact.REBOOTED, HostFact.GPU, HostFact.RANKS):
            self.series.declare(fam.HOST_FAILURES, kind.value)
        for outcome in Outcome:
            self.series.declare(fam.HOST_CHECKS, outcome.name)
        for rule in Rule:
            self.series.declare(fam.HANG_NOTICES, rule.value)

    def _on_let_in(self, event: ev.DependencyEnded | ev.TurnCame) -> None:
        self._freed[event.job_id] = event.at

    def _on_placed(self, event: ev.JobPlaced) -> None:
        job, freed_at = self._cluster.jobs[event.job_id], self._freed.pop(event.job_id, None)
        # Where an earlier controller counted those ends, it isn't known since when the job waits for hosts.
        if event.attempt == 1 and (freed_at is not None or not (job.gang.after or job.gang.takes_turns)):
            self.series.observe(fam.JOB_WAIT, event.at - (job.created_at if freed_at is None else freed_at))
        self._placed[event.job_id] = event.at

    def _on_started(self, event: ev.GangStarted) -> None:
        placed_at = self._placed.pop(event.job_id, None)
        if placed_at is not None:
            self.series.observe(fam.JOB_START, event.at - placed_at)
        self._on_recovered(event.job_id, event.generation)

    def _on_recovered(self, job_id: str, generation: int) -> None:
        recovery = _recovery(self._cluster.jobs[job_id], generation)
        if recovery is None:
            return
        spent = phases_of(recovery)
        durations = (spent.detect_s, spent.diagnose_s, spent.stop_s, spent.start_s)
        for phase, seconds in zip(PHASES[:-1], durations, strict=True):
            if seconds is not None:
                self.series.observe(fam.RECOVERY, seconds, phase)
        if recovery.warm is not None:
            how = "in_process" if recovery.in_process_ranks else "warm"
            self.series.add(fam.WARM_STARTS, how if recovery.warm else "cold")
        if spent.lost_s is not None:
            self.series.observe(fam.RECOVERY_LOST, spent.lost_s)

    def _on_caught_up(self, event: ev.CaughtUp) -> None:
        recovery = _recovery(self._cluster.jobs[event.job_id], event.generation)
        if recovery is not None and recovery.ended_at is not None:
            self.series.observe(fam.RECOVERY, event.at - recovery.ended_at, "catch_up")

    def _on_restart(self, event: ev.RestartDecided) -> None:
        self.series.add(fam.JOB_RESTARTS, event.end_reason.value, "in_place" if event.worker is None else "worker")
        # A launch that failed before its ranks ran is part of no start.
        self._placed.pop(event.job_id, None)

    def _on_attempt_ended(self, event: ev.AttemptEnded) -> None:
        if event.recover is not None:
            self.series.add(fam.JOB_RESTARTS, event.end_reason.value, "reschedule")
        self._placed.pop(event.job_id, None)

    def _on_ended(self, event: ev.JobEnded) -> None:
        self.series.add(fam.JOBS_ENDED, event.state.name)
        self._placed.pop(event.job_id, None)
        self._freed.pop(event.job_id, None)

    def _on_verdict(self, job_id: str, outcome: HangOutcome) -> None:
        self.series.add(fam.HANG_VERDICTS, self._cluster.jobs[job_id].gang.hang.action.name, outcome.value)


def _recovery(job: Job, generation: int) -> Recovery | None:
    return next((found for found in reversed(job.recoveries) if found.generation == generation), None)
