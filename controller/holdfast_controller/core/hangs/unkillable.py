"""Workers that survive KILL after a hang was acted on: no second action, but an event and a cordoned host.

A process that survives KILL is stuck in the kernel: storage that doesn't answer, a driver that is wedged. No action
of ours would help, so the restart waits until the place is proven empty, and goes on by itself then. The host takes
no new work until an admin has looked at it.
"""

from __future__ import annotations

from holdfast._session.reports import ExitReason
from holdfast.hang.judge.stages import Rung
from holdfast.hang.judge.state import stuck
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Step

BY = "holdfast"
"""The author of cordons that no admin asked for."""


def on_stuck(step: Step, job: Job, index: int, why: str) -> None:
    """Record that a host can't get rid of a worker's processes, once per hang and host, and cordon it."""
    hang = _acted_on(job)
    name = job.places[index].host
    if hang is None or name in hang.stuck_hosts:
        return
    generation, watch = step.cluster.watches.get(job.id, (0, None))
    if watch is not None and watch.rung is Rung.ACTED:
        step.cluster.watches[job.id] = generation, stuck(watch)
    worker = job.gang.members[index].name
    step.emit(ev.HangStuck(job_id=job.id, at=step.now.wall, worker=worker, host=name, why=why))
    if not step.cluster.hosts[name].cordoned:
        reason = f"{worker} of {job.id} outlives KILL after a hang" + (f": {why}" if why else "")
        step.emit(ev.HostCordoned(host=name, at=step.now.wall, reason=reason, by=BY))


def _acted_on(job: Job) -> Hang | None:
    """The hang that the gang is being stopped for; None where it is stopped for another reason."""
    if not job.hangs or job.stop_reason is not ExitReason.HANG_KILLED:
        return None
    hang = job.hangs[-1]
    if job.outcome is not None:
        return hang if hang.outcome is HangOutcome.BUDGET_SPENT else None
    moving = job.vacating is not None and hang.generation == job.generation
    again = hang.generation == job.generation - 1 and not job.launched
    return hang if hang.outcome is HangOutcome.RESTARTED and (again or moving) else None
