"""Verbs of draining: a host takes no new work, and what runs there ends by itself or moves off in time."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.actions import Reply
from holdfast_controller.core.assignments import on_host
from holdfast_controller.core.attempts import Story, retry
from holdfast_controller.core.host_model import Host
from holdfast_controller.core.lookup import find_host
from holdfast_controller.core.model import Job
from holdfast_controller.core.steps import Step
from holdfast_controller.core.stimuli import DrainAsked


def on_drain(step: Step, asked: DrainAsked) -> None:
    """Let a host take no new work, and have what runs there moved off at the deadline."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    deadline = None if asked.deadline_s is None else step.now.wall + asked.deadline_s
    step.emit(ev.HostDraining(host.name, step.now.wall, asked.reason, asked.by, deadline, asked.at_checkpoint))
    if asked.deadline_s is not None:
        step.timers.set(("drain", host.name), step.now.mono + asked.deadline_s)
    step.do(Reply(asked.token, host.name))


def on_deadline(step: Step, host: Host) -> None:
    """Its time is up: whatever still runs there goes on elsewhere."""
    if not host.draining:
        return
    jobs: dict[str, Job] = {job.id: job for job, _ in on_host(step.cluster, host.name)}
    for job in jobs.values():
        move_off(step, job, host.name)


def move_off(step: Step, job: Job, host: str) -> None:
    """Go on elsewhere with what a job has on a host; its other workers keep their places. Costs no budget."""
    if not job.stopping:
        story = Story(f"host {host}", step.now.wall)
        retry(step, job, ev.Failure("DRAINED"), "DRAINED", story, away=frozenset({host}), replace=True)
