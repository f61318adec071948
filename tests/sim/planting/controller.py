"""Bugs planted in the controller's core."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from holdfast_controller.core import events as ev
from holdfast_controller.core import reactor as controller_reactor
from holdfast_controller.core.hosts import sessions, worker_reports
from holdfast_controller.core.lifecycle import exits, launch, lost_hosts, stop
from holdfast_controller.core.model.arrays import Array
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.runtime import Prepared
from holdfast_controller.core.scheduling import pass_state, placement
from holdfast_controller.core.step import assignment, idempotency
from holdfast_controller.core.step import step as steps
from holdfast_controller.core.step.actions import AckExits
from holdfast_controller.core.step.step import Step


def no_fence() -> AbstractContextManager[Any]:
    sound = assignment.desired
    return patch.object(steps, "desired", lambda *args: replace(sound(*args), fence_s=0.0))


def lost_hosts_give_all_back() -> AbstractContextManager[Any]:
    sound = sessions._lose

    def lose(step: Step, name: str, silent_s: float) -> None:
        sound(step, name, silent_s)
        for job in sessions._jobs_on(step, name):
            here = [index for index in job.awaited if job.places[index].host == name]
            exits.lose_workers(step, job, here, f"{name} was lost", vouched=True)

    return patch.object(sessions, "_lose", lose)


def lost_is_stopped() -> AbstractContextManager[Any]:
    sound = lost_hosts.has_stopped
    return patch.object(
        lost_hosts,
        "has_stopped",
        lambda cluster, job, index: job.gang.replace_if_isolated or sound(cluster, job, index),
    )


def _emits(alter: Callable[[Step, Any], list[Any]]) -> AbstractContextManager[Any]:
    sound = Step.emit

    def emit(self: Step, event: Any) -> None:
        for other in alter(self, event):
            sound(self, other)

    return patch.object(Step, "emit", emit)


def generation_again() -> AbstractContextManager[Any]:
    def alter(_: Step, event: Any) -> list[Any]:
        again = isinstance(event, ev.RestartDecided) and event.worker is None
        return [replace(event, generation=event.generation - 1) if again else event]

    return _emits(alter)


def share_freed_at_once() -> AbstractContextManager[Any]:
    def alter(step: Step, event: Any) -> list[Any]:
        if not isinstance(event, ev.AttemptEnded | ev.JobEnding):
            return [event]
        job = step.cluster.jobs[event.job_id]
        members = (job.gang.members[index] for index in job.awaited)
        return [event, *(ev.WorkerEmptied(job_id=job.id, at=event.at, worker=member.name) for member in members)]

    return _emits(alter)


def cancels_what_has_ended() -> AbstractContextManager[Any]:
    sound = stop.on_cancel

    def on_cancel(step: Step, asked: Any) -> None:
        job = step.cluster.jobs.get(asked.job_id)
        if job is not None and job.terminal and job.state is not JobState.CANCELLED:
            step.emit(ev.JobEnding(job_id=job.id, at=step.now.wall, outcome=JobState.CANCELLED))
        sound(step, asked)

    return patch.object(controller_reactor, "on_cancel", on_cancel)


def acks_what_it_drops() -> AbstractContextManager[Any]:
    def on_exits(step: Step, reported: Any) -> None:
        sequences = tuple(report.sequence for report in reported.reports)
        step.do(AckExits(reported.host, reported.session, sequences))

    return patch.object(exits, "on_exits", on_exits)


def too_many_turns() -> AbstractContextManager[Any]:
    sound = Array.next_turns

    def next_turns(self: Array) -> list[str]:
        return sound(replace(self, at_once=self.at_once + 1) if self.at_once else self)

    return patch.object(Array, "next_turns", next_turns)


def does_not_wait_for_all() -> AbstractContextManager[Any]:
    sound = launch.on_prepared

    def on_prepared(step: Step, job: Any, index: int, report: Any) -> None:
        sound(step, job, index, report)
        prepared = step.cluster.runtime_of(job.id).prepared
        if prepared and not job.launched and not job.stopping:
            for other in range(len(job.places)):
                prepared.setdefault(other, Prepared(1, 1))
            launch.launch(step, job)

    return patch.object(worker_reports, "on_prepared", on_prepared)


def requests_are_forgotten() -> AbstractContextManager[Any]:
    sound = idempotency.on_once

    def on_once(step: Step, once: Any, act: Any) -> None:
        step.cluster.requests.clear()
        step.cluster.answers.clear()
        sound(step, once, act)

    return patch.object(controller_reactor, "on_once", on_once)


def one_secret_for_a_job() -> AbstractContextManager[Any]:
    sound = launch._rendezvous
    return patch.object(
        launch, "_rendezvous", lambda cluster, job, *args: replace(sound(cluster, job, *args), secret=job.id)
    )


def says_nothing_after_a_hello() -> AbstractContextManager[Any]:
    sound = sessions.on_connected

    def on_connected(step: Step, hello: Any) -> None:
        sound(step, hello)
        step.touched.clear()

    return patch.object(sessions, "on_connected", on_connected)


def replaces_anywhere() -> AbstractContextManager[Any]:
    sound = placement.plan_on

    def plan_on(gang: Any, hosts: Any, capacity_of: Any, kept: Any = None, *, spares: bool = True) -> Any:
        return sound(replace(gang, near=None) if kept else gang, hosts, capacity_of, kept, spares=spares)

    return patch.object(placement, "plan_on", plan_on)


def _connected(cluster: Any) -> list[Any]:
    return [host for host in cluster.hosts.values() if cluster.presence_of(host.name).is_connected]


def hello_outranks_exits() -> AbstractContextManager[Any]:
    return patch.object(worker_reports, "on_found", worker_reports.on_report)


def takes_what_is_closed() -> AbstractContextManager[Any]:
    return patch.object(pass_state, "schedulable_hosts", _connected)
