"""Shutdown of a host that was announced by its agent: its work moves at once, instead of after a silence.

Jobs that asked for a warning get it first. Its agent ends the workers by itself, after that notice and with their jobs'
grace; exits that it then reports were intended and are charged to no budget. A drain of the host stays as it was. The
host takes work again once it connects after another boot, or when an admin uncordons it.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.drain import leave_at_shutdown
from holdfast_controller.core.model.job import Job
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
        leave_at_shutdown(step, job, host.name)
