"""Verbs of the end of a rank: record it once, and decide whether the job is done, goes on, or is over."""

from __future__ import annotations

from dataclasses import replace

from holdfast_controller.core import events as ev
from holdfast_controller.core import restart
from holdfast_controller.core.actions import AckExit, Note
from holdfast_controller.core.cause import name_cause
from holdfast_controller.core.gang import Member, Success
from holdfast_controller.core.job import JobState
from holdfast_controller.core.launch import check_started
from holdfast_controller.core.model import Exit, ExitReason, Job
from holdfast_controller.core.records import unknown_ends
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
    exit_ = reported.exit
    if exit_.reason is ExitReason.CANNOT_START and reported.host not in exit_.message:
        exit_ = replace(exit_, message=f"{reported.host}: {exit_.message}")
    record_exits(step, job, job.gang.members[index], [exit_], port_taken=reported.port_taken)
    step.do(AckExit(reported.host, reported.session, reported.sequence))


def _is_there(job: Job, index: int, reported: ExitReported) -> bool:
    newest = job.generation if job.launched else job.generation - 1
    return (
        index < len(job.places)
        and job.places[index].host == reported.host
        and 1 <= reported.exit.generation <= newest
        and reported.exit.rank in job.gang.members[index].ranks
    )


def record_exits(step: Step, job: Job, member: Member, exits: list[Exit], *, port_taken: bool = False) -> None:
    """Write terminal records of a worker's ranks where there are none, then act on those of this generation."""
    fresh = []
    for exit_ in exits:
        known = job.exit_of(exit_.generation, exit_.rank)
        if known is None:
            step.emit(ev.RankExited(job.id, step.now.wall, member.name, exit_))
            fresh.append(exit_)
        elif _differs(known, exit_) and exit_ not in job.late_exits:
            step.emit(ev.LateExitFound(job.id, step.now.wall, member.name, exit_))
    if job.launched and any(exit_.generation == job.generation - 1 for exit_ in fresh):
        name_cause(step, job)
    current = [exit_ for exit_ in fresh if exit_.generation == job.generation]
    if not current or job.outcome is not None:
        return
    bad = next((exit_ for exit_ in current if not exit_.ok), None)
    if bad is None or job.primary_done_at is not None:
        _check_done(step, job)
    else:
        answer(step, job, member, bad, port_taken=port_taken)


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
    if job.outcome is None:
        check_started(step, job)


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
    """A place can't be made ready: its ranks will never start, and the failure policy decides.

    Once the gang is launched that means that what was ready (its ports, most likely) is so no longer; the next
    generation prepares afresh, and finds out if it is more than that.
    """
    if job.outcome is not None:
        return
    member = job.gang.members[index]
    reason = ExitReason.NOT_STARTED if job.launched else ExitReason.CANNOT_START
    records = [
        Exit(job.attempt, job.generation, rank, reason, message=message, end_time=step.now.wall)
        for rank in member.ranks
    ]
    record_exits(step, job, member, records, port_taken=job.launched)


def on_place_vanished(step: Step, job: Job, index: int, *, rebooted: bool) -> None:
    """The host knows nothing of a worker that was launched there: its ranks are lost, never launched twice."""
    reason = ExitReason.LOST_REBOOT if rebooted else ExitReason.LOST_SHIM_DIED
    member = job.gang.members[index]
    message = f"{job.places[index].host} has no record of it"
    record_exits(step, job, member, unknown_ends(job, member, reason, message, step.now.wall))
