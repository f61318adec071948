"""Shutdown of a host that was announced by its agent: its work moves at once, instead of after a silence.

Jobs that asked for a warning get it first. Its agent ends the workers by itself, after that notice and with their jobs'
grace; exits that it then reports were intended and are
charged to no budget. A drain of the host stays as it was. The host takes work again once it connects after another
boot, or when an admin uncordons it.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import shut_down
from holdfast_controller.core.lifecycle.stop import end_if_done, let_go_done
from holdfast_controller.core.lifecycle.warning_signal import gives_notice
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.step.assignment import on_host
from holdfast_controller.core.step.commands import ShutdownAnnounced
from holdfast_controller.core.step.step import Step


def on_going_down(step: Step, told: ShutdownAnnounced) -> None:
    """Have each job go on without this host. Said again, it changes nothing for jobs that are about to."""
    host = step.cluster.hosts[told.host]
    if not host.going_down:
        step.emit(ev.HostShutdownBegan(host=host.name, at=step.now.wall))
    jobs: dict[str, Job] = {job.id: job for job, _ in on_host(step.cluster, host.name)}
    for job in jobs.values():
        go_on_without(step, job, host.name)


def go_on_without(step: Step, job: Job, host: str) -> None:
    """Have a job go on without a host that shuts down, once its ranks have had their notice."""
    if job.stopping or job.unreconciled is not None or end_if_done(step, job) or let_go_done(step, job, host):
        return
    if not gives_notice(step, job, EndReason.HOST_SHUTDOWN, Related(host=host)):
        shut_down(step, job, Related(host=host))
