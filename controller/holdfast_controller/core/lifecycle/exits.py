"""Exits of ranks: record each once, and decide whether the job has succeeded, goes on, or has failed."""

from __future__ import annotations

from itertools import groupby

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import RestartScope, SuccessPolicy
from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle import failure_policy
from holdfast_controller.core.lifecycle.attempts import HangRestart, Story, on_left, reached, retry
from holdfast_controller.core.lifecycle.drain import leave_as_warned
from holdfast_controller.core.lifecycle.exit_blame import Blame, blame
from holdfast_controller.core.lifecycle.exit_tally import all_well
from holdfast_controller.core.lifecycle.faulty_hosts import cordon_faulty, faulty_hosts
from holdfast_controller.core.lifecycle.launch import check_started
from holdfast_controller.core.lifecycle.missing_exits import as_known_here, close_records, last_heard, unknown_ends
from holdfast_controller.core.lifecycle.other_hosts import could_move
from holdfast_controller.core.lifecycle.root_cause import (
    SETTLE_S,
    end_reason_of,
    failed_at,
    first_failure,
    is_settled,
    member_of,
    name_cause,
)
from holdfast_controller.core.lifecycle.stop import end, end_if_done, is_done
from holdfast_controller.core.lifecycle.time_left import in_time
from holdfast_controller.core.lifecycle.warning_signal import leaves_by_itself
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.exits import ExitsReported
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job, Unreconciled
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Related, of_rank
from holdfast_controller.core.step.actions import AckExits, Note
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

LATE_MOST = 8
"""Further accounts of one end that are kept."""


def on_exits(step: Step, reported: ExitsReported) -> None:
    """Record exits, whichever generations they are of, and acknowledge them once they are durable.

    Those of one worker are all recorded before anything is decided by them. A second, different account of the same
    end is kept beside the first. What an agent says of jobs that we don't know, or of workers that aren't on its host,
    is neither believed nor acknowledged: it keeps it.
    """
    heard: list[int] = []
    for (key, port_taken), reports in groupby(reported.reports, lambda each: (each.key, each.port_taken)):
        heard += _of_worker(step, replace(reported, reports=tuple(reports)), key, port_taken=port_taken)
    if heard:
        step.do(AckExits(reported.host, reported.session, tuple(heard)))


def _of_worker(step: Step, reported: ExitsReported, key: WorkerId, *, port_taken: bool) -> list[int]:
    """Record exits of one worker; returns those to acknowledge, by their sequences."""
    host, heard = reported.host, [report.sequence for report in reported.reports]
    job = step.cluster.jobs.get(key.job)
    index = job.gang.index_by_name.get(key.worker) if job is not None else None
    if job is not None and job.unreconciled is Unreconciled.OPEN:
        step.cluster.deferred_exits.setdefault(job.id, []).append(reported)
        return []
    exits = as_known_here(step, host, [report.exit for report in reported.reports], job)
    if (job is None or index is None) and step.cluster.gaps:
        for exit_ in exits:
            step.emit(ev.OrphanExited(host=host, at=step.now.wall, job=key.job, worker=key.worker, exit=exit_))
        return heard
    if job is None and key.job in step.cluster.purged:
        return heard
    there = _are_there(job, index, host, exits) if job is not None and index is not None else [False] * len(exits)
    if not all(there):
        step.do(Note("worker.unknown_exit", (("host", host), ("worker", str(key)))))
    if job is not None and index is not None and any(there):
        believed = [_naming(host, exit_) for exit_, is_there in zip(exits, there, strict=True) if is_there]
        record_exits(step, job, job.gang.members[index], believed, port_taken=port_taken)
    return [sequence for sequence, is_there in zip(heard, there, strict=True) if is_there]


def _naming(host: str, exit_: Exit) -> Exit:
    """The same; of one that could not start its message names the host."""
    if exit_.reason is not ExitReason.CANNOT_START or host in exit_.message:
        return exit_
    return replace(exit_, message=f"{host}: {exit_.message}")


def _are_there(job: Job, index: int, host: str, exits: list[Exit]) -> list[bool]:
    """For each exit, whether its rank was launched on the host."""
    ranks = job.gang.members[index].ranks
    launched = {number for number in {exit_.generation for exit_ in exits} if _ran_there(job, index, host, number)}
    return [exit_.rank in ranks and exit_.generation in launched for exit_ in exits]


def _ran_there(job: Job, index: int, host: str, generation: int) -> bool:
    if job.is_skipped(generation):
        return True  # launched by a controller whose log is lost
    place = job.place_at(generation, index)
    return place is not None and place.host == host and job.was_launched(generation, index)


def record_exits(
    step: Step, job: Job, member: Member, exits: list[Exit], *, port_taken: bool = False, unfit: bool = False
) -> None:
    """Write terminal records of a worker's ranks where there are none, then act on those of this generation."""
    fresh = _record(step, job, member, exits)
    generation = job.generation_of(member.index)
    older = any(exit_.generation < generation for exit_ in fresh)
    if (older or job.stopping) and not job.terminal:
        name_cause(step, job)
    current = [exit_ for exit_ in fresh if exit_.generation == generation]
    if current and not job.stopping:
        _act_on(step, job, member, current, port_taken=port_taken, unfit=unfit)


def _record(step: Step, job: Job, member: Member, exits: list[Exit]) -> list[Exit]:
    """Write what is not known yet; returns the first records of their ranks, without late ones."""
    fresh: dict[tuple[int, int], Exit] = {}
    late = []
    for exit_ in exits:
        generation, rank = exit_.generation, exit_.rank
        known = job.exit_of(generation, rank) or fresh.setdefault((generation, rank), exit_)
        if known is not exit_ and _differs(known, exit_):
            late.append(exit_)
    step.emit_exits(job, member.name, list(fresh.values()))
    for exit_ in late:
        if _is_heard(job, exit_):
            step.emit(ev.LateExitFound(job_id=job.id, at=step.now.wall, worker=member.name, exit=exit_))
    return list(fresh.values())


def _act_on(step: Step, job: Job, member: Member, current: list[Exit], *, port_taken: bool, unfit: bool) -> None:
    """Decide on new exits of the generation that a worker is in, or wait until their cause is known."""
    leaves = leaves_by_itself(step, job)
    if leaves is not None:
        leave_as_warned(step, job, leaves)
    elif job.launch.primary_done_at is not None or all_well(job):
        _check_done(step, job)
    elif _is_alone(job) and not port_taken:
        bad = _to_answer_for(current)
        if bad is not None:
            _answer_for(step, job, member, bad, unfit=unfit)
    elif port_taken or is_settled(job):
        answer(step, job, port_taken=port_taken, unfit=unfit)
    elif (JobTimer.SETTLE, job.id) not in step.timers.due:
        step.timers.set((JobTimer.SETTLE, job.id), step.now.mono_in(SETTLE_S))


def _to_answer_for(exits: list[Exit]) -> Exit | None:
    """The exit to blame, else one that nothing is to blame for: stopped by its shim, or never started."""
    blamed = next((exit_ for exit_ in exits if blame(exit_) is not Blame.NONE), None)
    return blamed or next((exit_ for exit_ in exits if not exit_.ok), None)


def _differs(known: Exit, late: Exit) -> bool:
    return (known.exit_code, known.signal, known.reason) != (late.exit_code, late.signal, late.reason)


def _is_heard(job: Job, late: Exit) -> bool:
    """Whether it is new, and not from a host that tells the same end in ever new ways."""
    told = [exit_ for exit_ in job.late_exits if (exit_.generation, exit_.rank) == (late.generation, late.rank)]
    # When it ended may be known better each time.
    return len(told) < LATE_MOST and late not in [replace(exit_, end_time=late.end_time) for exit_ in told]


def _check_done(step: Step, job: Job) -> None:
    """End the job when all ranks have ended, or when the primary has: then after the end grace, if there is one."""
    ended = job.exits_now()
    if len(ended) == job.gang.rank_count:
        end(step, job, JobState.SUCCEEDED)
    elif job.gang.success is SuccessPolicy.PRIMARY and job.launch.primary_done_at is None:
        primary = job.gang.members[0]
        if all(rank in ended for rank in primary.ranks):
            step.emit(ev.PrimaryCompleted(job_id=job.id, at=step.now.wall))
            if job.gang.end_grace_s:
                step.timers.set((JobTimer.END_GRACE, job.id), step.now.mono_in(job.gang.end_grace_s))
            else:
                end(step, job, JobState.SUCCEEDED)
    if job.outcome is None:
        check_started(step, job)


def on_end_grace(step: Step, job: Job) -> None:
    """End the job as succeeded: the other workers have had their grace after the primary completed."""
    end_if_done(step, job)


def on_settled(step: Step, job: Job) -> None:
    """Decide on a failure once ranks that may have caused it have had time to report it; a job that leaves has none."""
    if not may_settle(job):
        return
    leaves = leaves_by_itself(step, job)
    if leaves is not None:
        leave_as_warned(step, job, leaves)
    else:
        answer(step, job)


def may_settle(job: Job) -> bool:
    """Whether a failure waits for what other ranks may still say of themselves."""
    runs = job.launched and not job.stopping and not _is_alone(job)
    return runs and first_failure(job, job.generation) is not None


def _is_alone(job: Job) -> bool:
    """Whether each worker's failure is its own matter."""
    return job.gang.retries.scope is RestartScope.WORKER and len(job.gang.members) > 1


def answer(step: Step, job: Job, *, port_taken: bool = False, unfit: bool = False) -> None:
    """Do what the failure policy says of the first failure of this generation."""
    found = first_failure(job, job.generation) or _any_failure(job)
    if found is None:
        return
    _answer_for(step, job, *found, port_taken=port_taken, unfit=unfit)


def _answer_for(
    step: Step, job: Job, member: Member, exit_: Exit, *, port_taken: bool = False, unfit: bool = False
) -> None:
    problem = _gpu_problem(step, job, member)
    cause = failure_policy.classify(job.gang, exit_, port_taken=port_taken, unfit=unfit, gpu_problem=problem)
    _act(step, job, member, exit_, cause, problem)


def _act(step: Step, job: Job, member: Member, exit_: Exit, cause: failure_policy.Cause, problem: str = "") -> None:
    step.timers.clear((JobTimer.SETTLE, job.id))
    story = Story(of_rank(member.name, exit_.rank), failed_at(step, job, exit_))
    host = job.places[member.index].host
    away = frozenset({host})
    if cause is failure_policy.Cause.HANG:
        away = frozenset(
            place.host for place in job.places
        )  # those that gave up waiting tell nothing of the guilty
    elsewhere = cause is failure_policy.Cause.HANG and could_move(step.cluster, job, away)
    decided = failure_policy.decide(job, member, exit_, cause, reached(step, job), could_move=elsewhere)
    match in_time(step, job, member, exit_, decided):
        case failure_policy.Fail(error):
            end(step, job, JobState.FAILED, error)
        case failure_policy.Restart(cause, failure, charged):
            whole = not _is_alone(job) or cause in (failure_policy.Cause.PORT_TAKEN, failure_policy.Cause.HANG)
            restart_gang(
                step,
                job,
                worker=None if whole else member.index,
                end_reason=end_reason_of(cause, exit_),
                related=story.related,
                failed_at=story.failed_at,
                charged=charged,
                failure=failure if cause is not failure_policy.Cause.PORT_TAKEN else None,
            )
        case failure_policy.Replace(cause, failure, cordon):
            if cordon and not faulty_hosts(step, job, (member.index,)):
                cordon_faulty(step, host, f"{job.id}: {problem or exit_.message or cause.value}")
            why = end_reason_of(cause, exit_)
            retry(step, job, failure, why, story, away=frozenset({host}), replace=True, cordoned=cordon)
        case failure_policy.Retry(cause, failure):
            why = end_reason_of(cause, exit_)
            retry(step, job, failure, why, story, away=away)


def _any_failure(job: Job) -> tuple[Member, Exit] | None:
    """The first exit that is no success where no rank is to blame, such as one that never started; None without."""
    bad = next((exit_ for exit_ in job.exits_now().values() if not exit_.ok), None)
    return (member_of(job, bad.rank), bad) if bad is not None else None


def _gpu_problem(step: Step, job: Job, member: Member) -> str:
    """The problem of a GPU of the worker, by its ranks or its host's inventory; empty when all are well."""
    runtime = step.cluster.runtime.get(job.id)
    vector = runtime.features.get(member.index) if runtime is not None else None
    for rank in vector.ranks if vector is not None else ():
        if rank.broken:
            return f"rank {rank.rank}: {rank.hardware}"
    place = job.places[member.index]
    problems = step.cluster.hosts[place.host].gpu_problems()
    return next((problems[uuid] for uuid in place.gpus if uuid in problems), "")


def restart_gang(
    step: Step,
    job: Job,
    *,
    end_reason: EndReason,
    related: Related,
    failed_at: Wall,
    charged: int | None = None,
    stop_reason: ExitReason = ExitReason.STOPPED,
    hang: HangRestart | None = None,
    failure: ev.Failure | None = None,
    worker: int | None = None,
) -> None:
    """Go on with the next generation in the same places: one message stops the old and prepares the new.

    With ``worker`` only that one is relaunched, under the addresses that its peers know already. Workers whose GPUs
    have been condemned meanwhile go on elsewhere instead, as do those whose places were given up when they were done.
    """
    faulty = faulty_hosts(step, job, range(len(job.places)) if worker is None else (worker,))
    if faulty or (worker is None and job.placement.emptied):
        why = failure or ev.Failure(key=end_reason.value)
        story = Story(related, failed_at, hang)
        retry(step, job, why, end_reason, story, away=frozenset(faulty), replace=True, stop_reason=stop_reason)
        return
    wait_s = failure_policy.backoff_s(job, failure) if failure is not None and hang is None else 0.0
    step.emit(
        ev.RestartDecided(
            job_id=job.id,
            at=step.now.wall,
            generation=job.generation + 1,
            end_reason=end_reason,
            related=related,
            stop_reason=stop_reason,
            failed_at=failed_at,
            charged=charged,
            port_retry=end_reason is EndReason.PORT_TAKEN,
            hang_restarts=hang.restarts if hang else None,
            hang_step=hang.step if hang else None,
            detect_s=hang.detect_s if hang else None,
            diagnose_s=hang.diagnose_s if hang else 0.0,
            failure=failure,
            not_before=step.now.wall_in(wait_s) if wait_s else None,
            worker=worker,
        )
    )
    step.timers.clear((JobTimer.END_GRACE, job.id))
    step.timers.clear((JobTimer.SETTLE, job.id))
    if worker is None:
        step.touch(job)
    else:
        step.touch(job, worker)
        if wait_s:
            key, due = (JobTimer.LAUNCH, job.id), step.now.mono_in(wait_s)
            step.timers.set(key, max(due, step.timers.due.get(key, due)))


def on_cannot_prepare(step: Step, job: Job, index: int, message: str, *, host_fault: bool = False) -> None:
    """A place can't be made ready: its ranks will never start, and the failure policy decides.

    Once the gang is launched that means that what was ready (its ports, most likely) is so no longer; the next
    generation prepares afresh, and finds out if it is more than that.
    """
    if job.stopping:
        return
    member = job.gang.members[index]
    gone = job.launched and not host_fault
    reason = ExitReason.NOT_STARTED if gone else ExitReason.CANNOT_START
    records = [
        Exit(job.attempt, job.generation_of(index), rank, reason, message=message, end_time=step.now.wall)
        for rank in member.ranks
    ]
    record_exits(step, job, member, records, port_taken=gone, unfit=host_fault)


def on_place_vanished(step: Step, job: Job, index: int, *, rebooted: bool) -> None:
    """The host knows nothing of a worker that was launched there: its ranks are lost, never launched twice."""
    reason = ExitReason.LOST_REBOOT if rebooted else ExitReason.LOST_SHIM_DIED
    if step.cluster.hosts[job.places[index].host].unreconciled:
        reason = ExitReason.LOST_RECORD  # it may have ended, and been forgotten, after the backup
    member = job.gang.members[index]
    host = job.places[index].host
    ends = unknown_ends(
        job, member, reason, f"{host} has no record of it", last_heard(step.cluster, host, step.now.wall)
    )
    record_exits(step, job, member, ends)


def lose_workers(step: Step, job: Job, gone: list[int], message: str, *, vouched: bool = False) -> None:
    """Workers are given up together with their host: their ranks are lost, and the job goes on without them.

    Only where they have stopped by themselves by now, or where an admin ``vouched`` for it.
    """
    cut_short = [index for index in gone if not is_done(step, job, index)]
    for index in gone:
        member = job.gang.members[index]
        heard = last_heard(step.cluster, job.places[index].host, step.now.wall)
        record_exits(step, job, member, unknown_ends(job, member, ExitReason.LOST_HOST, message, heard))
    if job.launch.primary_done_at is not None and not vouched and not job.stopping:
        return  # The others have the rest of their end grace.
    if not job.stopping and gone and not end_if_done(step, job) and cut_short:
        member = job.gang.members[cut_short[0]]
        lost = Exit(
            job.attempt, job.generation_of(member.index), member.first_rank, ExitReason.LOST_HOST, message=message
        )
        heard = last_heard(step.cluster, job.places[member.index].host, step.now.wall)
        _act(step, job, member, replace(lost, end_time=heard), failure_policy.Cause.HOST_LOST)
    for index in gone:
        member = job.gang.members[index]
        close_records(step, job, member, ExitReason.LOST_HOST, message)
        step.emit(ev.WorkerFenced(job_id=job.id, at=step.now.wall, worker=member.name, vouched=vouched))
    on_left(step, job)
