"""The action on a confirmed hang: the next generation in place, within its budget, or the job's end."""

from __future__ import annotations

from typing import TypeVar

from holdfast._base.dataclass import replace
from holdfast._session.reports import ExitReason
from holdfast.hang.judge.finding import Finding
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import HangRestart, Story, began_s, retry
from holdfast_controller.core.lifecycle.exits import restart_gang
from holdfast_controller.core.lifecycle.failure_policy import Reached, may_try_elsewhere
from holdfast_controller.core.lifecycle.faulty_hosts import cordon_faulty, faulty_hosts
from holdfast_controller.core.lifecycle.other_hosts import could_move
from holdfast_controller.core.lifecycle.stop import end
from holdfast_controller.core.lifecycle.time_left import why_too_late
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Budget, EndReason, RankName, Related, ranks_named
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.step.step import Step

ABORTED = 10
_Told = TypeVar("_Told", ev.HangDiagnosed, ev.HangJudged)


def act(step: Step, job: Job, runtime: Runtime, finding: Finding, sentence: str, repeats: int) -> str:
    """Relaunch in place; once as many restarts in a row as the job allows have led nowhere, on other hosts, or end it.

    A job that each of these restarts has led back to the same wait, ``repeats`` times in a row, is left as it is:
    it may wait on purpose, and one more restart would change nothing. Returns why in that case, else an empty text.
    The hang was notified before; ``sentence`` is all that is known of it now.
    """
    hang = job.hangs[-1]
    suspects = ranks_named(finding.suspects) or hang.suspects
    hosts = hosts_of(job, suspects)
    again = _again(job, hosts)
    reached = highest_step(runtime)
    progress = Reached(reached, _saved(step, job, runtime)).progressed(job)
    restarts = 1 if _progressed(step, job, runtime, reached) else job.budgets.hang_restarts + 1
    late = why_too_late(step, job)
    spent = job.gang.retries.disabled or restarts > job.gang.max_hang_restarts or bool(late)
    away = frozenset(hosts) or frozenset(place.host for place in job.places)
    if late or (spent and not _tries_elsewhere(step, job, away, progressed=progress)):
        if not late and repeats and repeats >= job.gang.max_hang_restarts > 0 and not job.gang.retries.disabled:
            return (
                f"{_times(job)} led back to the same wait, so it is left as it is: end it with `holdfast job cancel"
                f" {job.id}`, or fix what it waits for"
            )
        judged = ev.HangJudged(
            job_id=job.id,
            at=step.now.wall,
            outcome=HangOutcome.BUDGET_SPENT,
            note=f"{late}, so it is not restarted" if late else again,
            suspects=suspects,
            hosts=hosts,
        )
        step.emit(revised(step, job, judged, finding))
        what = f"The job hangs: {sentence}. {late}; it is not restarted." if late else _spent(job, sentence)
        error = JobError(ABORTED, what, (hang.stacks,) if hang.stacks else ())
        end(step, job, JobState.FAILED, error, stop_reason=ExitReason.HANG_KILLED)
        return ""
    if spent:
        before = f"{_times(job)} led nowhere" if job.budgets.hang_restarts else "no restart in place is allowed"
        again = f"{before}: the job is placed again, on other hosts if it can be"
    judged = ev.HangJudged(
        job_id=job.id,
        at=step.now.wall,
        outcome=HangOutcome.RESTARTED,
        note=again,
        suspects=suspects,
        hosts=hosts,
    )
    step.emit(revised(step, job, judged, finding))
    related = Related(suspects)
    highest = max((at for at in (reached, job.budgets.hang_step) if at is not None), default=None)
    detect_s, diagnose_s = hang.noticed_at - hang.since, step.now.wall - hang.noticed_at
    condemned = faulty_hosts(step, job, range(len(job.places)))
    broken = _broken_hosts(job, runtime) | condemned
    failure = ev.Failure(
        budget=Budget.JOB if spent else Budget.NONE,
        host=hosts[0] if len(hosts) == 1 and not _is_rehearsed(job, hang) else "",
        progressed=progress,
        step=reached,
        checkpoint=_saved(step, job, runtime),
    )
    story = Story(
        related, hang.since, HangRestart(min(restarts, job.gang.max_hang_restarts), highest, detect_s, diagnose_s)
    )
    for name, problem in broken.items():
        if name not in condemned:
            cordon_faulty(step, name, f"{job.id}: {problem}")
    if again or broken:
        retry(
            step,
            job,
            failure,
            EndReason.HANG,
            story,
            away=frozenset(broken) or away,
            replace=True,
            stop_reason=ExitReason.HANG_KILLED,
            cordoned=bool(broken),
        )
        return ""
    restart_gang(
        step,
        job,
        end_reason=EndReason.HANG,
        related=related,
        failed_at=hang.since,
        stop_reason=ExitReason.HANG_KILLED,
        hang=story.hang,
        failure=failure,
    )
    return ""


def revised(step: Step, job: Job, event: _Told, finding: Finding) -> _Told:
    """The event with what the newest hang is found by now, where that is not what it was noticed by."""
    hang = job.hangs[-1]
    if finding.rule is hang.rule and ranks_named(finding.suspects) in ((), hang.suspects):
        return event
    since = step.now.wall_of(min(Mono(finding.since_s), step.now.mono))
    # What was noticed has lasted since before the notice, whatever the newer rule measures from.
    since = since if since <= hang.noticed_at else hang.since
    return replace(event, rule=finding.rule, sentence=finding.sentence, since=since)


def _tries_elsewhere(step: Step, job: Job, away: frozenset[str], *, progressed: bool) -> bool:
    """Whether the job is placed again although its hang restarts are spent: once, or each time if it asks for that."""
    retries = job.gang.retries
    used = 0 if progressed else job.budgets.spent.job_retries
    if retries.disabled or used >= retries.job_retries:
        return False
    return retries.unconditional or (may_try_elsewhere(job) and could_move(step.cluster, job, away))


def _broken_hosts(job: Job, runtime: Runtime) -> dict[str, str]:
    """Hosts on which a rank's GPU needs repair, and why."""
    return {
        job.places[index].host: f"{job.gang.members[index].name} rank {rank.rank}: {rank.hardware}"
        for index, vector in sorted(runtime.features.items())
        for rank in vector.ranks
        if rank.broken
    }


def _spent(job: Job, sentence: str) -> str:
    if job.gang.retries.disabled:
        return f"The job hangs, and its disableRetries allows no restart: {sentence}."
    if not job.budgets.hang_restarts:
        return f"The job hangs, and no restart upon a hang is allowed: {sentence}."
    where = f" past step {job.budgets.hang_step:.12g}" if job.budgets.hang_step is not None else ""
    return f"The job hangs again after {_times(job)} without progress{where}: {sentence}."


def _times(job: Job) -> str:
    times = job.budgets.hang_restarts
    return f"{times} restarts in a row" if times != 1 else "1 restart"


def _progressed(step: Step, job: Job, runtime: Runtime, reached: float | None) -> bool:
    """Whether the job got past where it hung before: by its highest step, or by a checkpoint since."""
    if not job.budgets.hang_restarts:
        return True
    if reached is not None or job.budgets.hang_step is not None:
        return reached is not None and (job.budgets.hang_step is None or reached > job.budgets.hang_step)
    return _saved(step, job, runtime)


def _saved(step: Step, job: Job, runtime: Runtime) -> bool:
    """Whether a checkpoint was written in this generation."""
    began = began_s(step, job)
    grown = (vector.output.last_checkpoint_s for vector in runtime.features.values())
    return any(at is not None and at > began for at in grown)


def _again(job: Job, hosts: tuple[str, ...]) -> str:
    """A sentence about hosts that were suspect in an earlier hang; empty where there are none.

    Hangs that were injected suspect no host.
    """
    if _is_rehearsed(job, job.hangs[-1]):
        return ""
    for host in hosts:
        before = [
            str(old.number)
            for old in job.hangs[:-1]
            if host in old.hosts
            and old.outcome in (HangOutcome.RESTARTED, HangOutcome.BUDGET_SPENT)
            and not _is_rehearsed(job, old)
        ]
        if before:
            which = f"hang {before[0]}" if len(before) == 1 else f"hangs {', '.join(before)}"
            return f"{host} was suspect in {which} too: its work moves to another host if one is free"
    return ""


def _is_rehearsed(job: Job, hang: Hang) -> bool:
    return job.is_rehearsed(hang.generation, hang.since)


def hosts_of(job: Job, suspects: tuple[RankName, ...]) -> tuple[str, ...]:
    """The hosts of these ranks, each once."""
    found: dict[str, None] = {}
    for suspect in suspects:
        index = job.gang.index_by_name.get(suspect.worker)
        if index is not None:
            found[job.places[index].host] = None
    return tuple(found)


def highest_step(runtime: Runtime) -> float | None:
    """The highest step that the program has reported in this generation; None where it reported none."""
    steps = [f.output.step for f in runtime.features.values() if f.output.step is not None]
    return max(steps, default=None)
