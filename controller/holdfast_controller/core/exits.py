"""Verbs of the end of a rank: record it once, and decide whether the job is done, goes on, or is over."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core import restart
from holdfast_controller.core.actions import AckExit, Note
from holdfast_controller.core.gang import Member, Success
from holdfast_controller.core.job import JobState
from holdfast_controller.core.launch import not_started
from holdfast_controller.core.model import Exit, ExitReason, Job
from holdfast_controller.core.steps import Step
from holdfast_controller.core.stimuli import ExitReported
from holdfast_controller.core.stop import end


def on_exit(step: Step, reported: ExitReported) -> None:
    """Record an exit, whichever generation it is of, and acknowledge it once it is durable.

    A second, different account of the same end is kept beside the first. What an agent says of jobs that we
    don't know, or of workers that aren't on its host, is neither believed nor acknowledged: it keeps it.
    """
    job = step.cluster.jobs.get(reported.job_id)
    index = job.gang.index_by_name.get(reported.worker) if job is not None else None
    if job is None or index is None or not _is_there(job, index, reported):
        fields = (("host", reported.host), ("job", reported.job_id), ("worker", reported.worker))
        step.do(Note("exit_of_unknown_worker", fields))
        return
    record_exit(step, job, job.gang.members[index], reported.exit, port_taken=reported.port_taken)
    step.do(AckExit(reported.host, reported.session, reported.sequence))


def _is_there(job: Job, index: int, reported: ExitReported) -> bool:
    return (
        index < len(job.places)
        and job.places[index].host == reported.host
        and reported.exit.generation <= job.generation
        and reported.exit.rank in job.gang.members[index].ranks
    )


def record_exit(step: Step, job: Job, member: Member, exit_: Exit, *, port_taken: bool = False) -> None:
    """Write the terminal record of a rank, unless there is one, and act on it if it is of this generation."""
    known = job.exit_of(exit_.generation, exit_.rank)
    if known is not None:
        if _differs(known, exit_) and exit_ not in job.late_exits:
            step.emit(ev.LateExitFound(job.id, step.now.wall, member.name, exit_))
        return
    step.emit(ev.RankExited(job.id, step.now.wall, member.name, exit_))
    if exit_.generation != job.generation or job.outcome is not None:
        return
    if exit_.ok or job.primary_done_at is not None:
        _check_done(step, job)
        return
    answer(step, job, member, exit_, port_taken=port_taken)


def _differs(known: Exit, late: Exit) -> bool:
    return (known.exit_code, known.signal, known.reason) != (late.exit_code, late.signal, late.reason)


def _check_done(step: Step, job: Job) -> None:
    """End the job when all ranks have ended, or start the end grace when the primary has."""
    ended = job.exits_now()
    if len(ended) == job.gang.world_size:
        end(step, job, JobState.SUCCEEDED)
    elif job.gang.success is Success.PRIMARY and job.primary_done_at is None:
        primary = job.gang.members[0]
        if all(rank in ended for rank in primary.ranks):
            step.emit(ev.PrimaryCompleted(job.id, step.now.wall))
            step.timers.set(("end_grace", job.id), step.now.mono + job.gang.end_grace_s)


def answer(step: Step, job: Job, member: Member, exit_: Exit, *, port_taken: bool) -> None:
    """Do what the failure policy says of the first failure of this generation."""
    match restart.decide(job, member, exit_, port_taken=port_taken):
        case restart.Fail(error):
            end(step, job, JobState.FAILED, error)
        case restart.Restart(charged, port_retry):
            restart_gang(
                step,
                job,
                end_reason="PORT_TAKEN" if port_retry else exit_.reason.name,
                related=f"{member.name} rank {exit_.rank}",
                failed_at=exit_.end_time or step.now.wall,
                charged=charged,
                port_retry=port_retry,
            )


def restart_gang(
    step: Step,
    job: Job,
    *,
    end_reason: str,
    related: str,
    failed_at: float,
    charged: int | None = None,
    port_retry: bool = False,
    stop_reason: ExitReason = ExitReason.STOPPED,
) -> None:
    """Go on with the next generation in the same places: one message stops the old and prepares the new."""
    step.emit(
        ev.RestartDecided(
            job.id,
            step.now.wall,
            job.generation + 1,
            end_reason,
            related,
            stop_reason,
            failed_at,
            charged,
            port_retry,
        )
    )
    step.timers.clear(("end_grace", job.id))
    step.touch(job)


def on_cannot_prepare(step: Step, job: Job, index: int, message: str) -> None:
    """A place can't be made ready: its ranks will never start, and the failure policy decides."""
    if job.outcome is not None or job.launched:
        return
    member = job.gang.members[index]
    records = not_started(job, index, message, step.now.wall)
    for exit_ in records:
        step.emit(ev.RankExited(job.id, step.now.wall, member.name, exit_))
    answer(step, job, member, records[0], port_taken=False)


def on_place_vanished(step: Step, job: Job, index: int, *, rebooted: bool) -> None:
    """The host knows nothing of a worker that was launched there: its ranks are lost, never launched twice."""
    member = job.gang.members[index]
    reason = ExitReason.LOST_REBOOT if rebooted else ExitReason.LOST_SHIM_DIED
    for rank in member.ranks:
        if job.exit_of(job.generation, rank) is None and job.outcome is None and job.launched:
            lost = Exit(
                job.attempt,
                job.generation,
                rank,
                reason,
                message=f"{job.places[index].host} has no record of it",
                end_time=step.now.wall,
            )
            record_exit(step, job, member, lost)
