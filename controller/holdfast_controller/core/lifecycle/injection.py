"""Faults that users put into ranks of their jobs on purpose, to see a recovery before they need it.

Only what is asked is decided here, and written down before anything is done. The rank's shim does it and undoes it. All
that follows is decided as if it had come by itself, except that no host is suspected for it (``Job.is_rehearsed``).
"""

from __future__ import annotations

from holdfast._base.projects import EVERY_PROJECT
from holdfast.errors import Denied, HoldfastError, InvalidInput, Violation, WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.root_cause import member_of
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import InjectionAsked, InjectionFailed
from holdfast_controller.core.step.lookup import find_job
from holdfast_controller.core.step.step import Step


def on_injection(step: Step, asked: InjectionAsked | InjectionFailed) -> None:
    """Note a fault that is about to be injected, or refuse it; note that it could not be."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return
    if isinstance(asked, InjectionFailed):
        _note_failed(step, job, asked)
        return
    problem = _refusal(step, job, asked)
    if problem is not None:
        step.do(Refuse(asked.token, problem))
        return
    step.emit(
        ev.FaultInjected(
            job_id=job.id,
            at=step.now.wall,
            by=asked.by,
            generation=asked.generation,
            worker=member_of(job, asked.rank).name,
            rank=asked.rank,
            fault=asked.fault,
            until=step.now.wall_in(asked.for_s),
            speed=asked.speed,
        )
    )
    step.do(Reply(asked.token, job.id))


def _note_failed(step: Step, job: Job, asked: InjectionFailed) -> None:
    """The host could not: what fails now is no rehearsal."""
    step.emit(
        ev.FaultNotInjected(
            job_id=job.id,
            at=step.now.wall,
            generation=asked.generation,
            worker=member_of(job, asked.rank).name,
            rank=asked.rank,
            why=asked.why,
        )
    )
    step.do(Reply(asked.token, job.id))


def _refusal(step: Step, job: Job, asked: InjectionAsked) -> HoldfastError | None:
    allowed = step.policies.injection_projects
    if not allowed & {EVERY_PROJECT, job.gang.project}:
        problem = f"No faults may be injected into jobs of the project {job.gang.project!r}."
        return Denied(problem, fix="An admin allows it by injection_projects in controller.toml.")
    if not 0 <= asked.rank < job.gang.rank_count:
        problem = f"the job has no rank {asked.rank}"
        return InvalidInput([Violation("rank", problem, f"ranks are 0 to {job.gang.rank_count - 1}")])
    member = member_of(job, asked.rank)
    runs = job.launched and not job.stopping and member.index in job.started
    if not runs or job.exit_of(job.generation_of(member.index), asked.rank) is not None:
        problem = f"Rank {asked.rank} of the job {job.id} is not running."
        return WrongState(problem, fix=f"See: holdfast job show {job.id}")
    if job.generation_of(member.index) != asked.generation:
        return WrongState(f"The job {job.id} was restarted just now.", fix="Try again.")
    return None
