"""Attempts: end one, wait until every worker of it is proven gone, then place the job again or pause it.

An attempt ends as a job does: each worker is stopped, and counts as gone only once its host has proven it.
Nothing of the next attempt is ordered before. Places that the next attempt will use again stay reserved.
"""

from __future__ import annotations

from holdfast._base.backoff import wait_s as doubling_s
from holdfast._base.dataclass import dataclass, replace
from holdfast._session.reports import ENDED_BY_THEMSELVES, ExitReason
from holdfast.errors import WrongState
from holdfast.hang.pipeline.features import OutputFeatures
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.failure_policy import Reached, backoff_s
from holdfast_controller.core.lifecycle.warning_signal import PAUSE, is_running, warn
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Budget, EndReason, Recover, Related
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import PauseAsked, ResumeAsked
from holdfast_controller.core.step.lookup import find_job
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer


def clear_timers(step: Step, job: Job) -> None:
    """Nothing of an attempt is timed any more."""
    for kind in JobTimer:
        step.timers.clear((kind, job.id))


EARLY_S = 600.0
"""A generation that ends later has done something, whatever is known of its progress."""
CLAIM_BACKOFF_S = 600.0
"""After an attempt that crashed early, no other job is stopped for the next one for so long; twice that each time."""
CLAIM_BACKOFF_MOST_S = 4 * 3600.0


def reached(step: Step, job: Job) -> Reached:
    """The progress of the current generation, as its hosts have reported it."""
    runtime = step.cluster.runtime.get(job.id)
    if runtime is None:
        return Reached()
    outputs = [vector.output for vector in runtime.features.values()]
    steps = [output.step for output in outputs if output.step is not None]
    saved = [output.last_checkpoint_s for output in outputs if output.last_checkpoint_s is not None]
    since_s = began_s(step, job)
    found = Reached(max(steps, default=None), any(at > since_s for at in saved))
    worked = bool(found.step) or found.checkpoint or any(_began_work(output, since_s) for output in outputs)
    return replace(found, early=not worked and _ran_s(step, job) < EARLY_S)


def _began_work(output: OutputFeatures, since_s: float) -> bool:
    """Whether a worker's program has begun its work; any new output is that where an older agent can't tell."""
    if output.began_work is not None:
        return output.began_work
    return output.last_progress_s is not None and output.last_progress_s > since_s


_CRASHES = frozenset(
    {
        EndReason.NONZERO_EXIT,
        EndReason.SIGNALED,
        EndReason.OUT_OF_MEMORY,
        EndReason.CANNOT_START,
        EndReason.PORT_TAKEN,
        EndReason.HANG,
        EndReason.HANG_KILLED,
    }
)
"""Ends of an attempt by what the job does itself."""


def began_s(step: Step, job: Job) -> float:
    """When the current generation began, on the monotonic clock: what was saved since then is its own.

    Its watch moves that on by the time that it doesn't count, such as that without a controller.
    """
    _, watch = step.cluster.watches.get(job.id, (0, None))
    began = _all_ran_at(job)
    known = [watch.began_s] if watch is not None else []
    return min([*known, *([step.now.mono_of(began)] if began is not None else [])], default=0.0)


def _all_ran_at(job: Job) -> Wall | None:
    """Since when all workers of the newest launch have run; None where not all were started."""
    last = job.recoveries[-1] if job.recoveries else None
    relaunched = last is not None and last.attempt == job.attempt
    return last.ended_at if last is not None and relaunched else job.placement.running_since


def _ran_s(step: Step, job: Job) -> float:
    """Seconds for which all workers of the newest launch have run; 0 where not all were started."""
    began = _all_ran_at(job)
    return 0.0 if began is None else step.now.wall - began


@dataclass(frozen=True)
class HangRestart:
    """Facts of a restart upon a hang: how many in a row, the step it hung at, and where the time went."""

    restarts: int
    step: float | None
    detect_s: float
    diagnose_s: float


@dataclass(frozen=True)
class Story:
    """Facts of a recovery record: the cause, and when it failed (wall clock)."""

    related: Related
    failed_at: Wall
    hang: HangRestart | None = None


def retry(
    step: Step,
    job: Job,
    failure: ev.Failure,
    end_reason: EndReason,
    story: Story,
    *,
    away: frozenset[str] = frozenset(),
    replace: bool = False,
    stop_reason: ExitReason = ExitReason.STOPPED,
    cordoned: bool = False,
) -> None:
    """End the attempt, to place the job again, without the hosts ``away`` if it can be.

    With ``replace`` the workers on other hosts keep their places. A job that is about to pause does that instead.
    """
    if job.pause_due is not None:
        pause(step, job)
        return
    keep = tuple(i for i in job.awaited if replace and job.places[i].host not in away)
    wait_s = backoff_s(job, failure)
    no_claim_s = _no_claim_s(step, job, failure, end_reason)
    hang = story.hang
    clear_timers(step, job)
    step.cluster.elapsed_loans.pop(job.id, None)
    step.emit(
        ev.AttemptEnded(
            job_id=job.id,
            at=step.now.wall,
            leaving=Leaving.RETRY,
            end_reason=end_reason,
            related=story.related,
            failed_at=story.failed_at,
            recover=_recover(replace=bool(keep), cordoned=cordoned),
            budget=failure.budget if replace else Budget.JOB,
            keep=keep,
            avoid=tuple(sorted(away)),
            stop_reason=stop_reason,
            failure=failure,
            not_before=step.now.wall_in(wait_s) if wait_s else None,
            no_claim_before=step.now.wall_in(no_claim_s) if no_claim_s else None,
            hang_restarts=hang.restarts if hang else None,
            hang_step=hang.step if hang else None,
            detect_s=hang.detect_s if hang else None,
            diagnose_s=hang.diagnose_s if hang else 0.0,
        )
    )
    if wait_s:
        step.timers.set((JobTimer.RETRY, job.id), step.now.mono_in(wait_s))
    if no_claim_s:
        step.timers.set((JobTimer.LOAN, job.id), step.now.mono_in(no_claim_s))
    _leave(step, job)


def _no_claim_s(step: Step, job: Job, failure: ev.Failure, end_reason: EndReason) -> float:
    """Seconds for which no other job is stopped for the next attempt: longer after each that crashed early in a row."""
    if end_reason not in _CRASHES or _ran_s(step, job) >= EARLY_S:
        return 0.0
    before = 0 if failure.progressed else job.budgets.spent.job_retries
    return doubling_s(before + 1, CLAIM_BACKOFF_S, CLAIM_BACKOFF_MOST_S)


def unsaved_s(cluster: Cluster, job: Job, now: Now) -> float:
    """Seconds of work that the job would lose if it were stopped now: since its last checkpoint that was seen."""
    began, runtime = job.placement.running_since, cluster.runtime.get(job.id)
    if began is None or runtime is None:
        return 0.0
    outputs = (vector.output for vector in runtime.features.values())
    saved = max((at for output in outputs if (at := output.last_checkpoint_s) is not None), default=None)
    ran_s = max(now.wall - began, 0.0)
    return ran_s if saved is None else min(ran_s, max(now.mono - saved, 0.0))


def give_way(step: Step, job: Job, to: Related) -> None:
    """Stop a job so that the job ``to`` may have its hosts. It waits for others, and no budget pays for it.

    It starts out of turn again only after as long as it has lost, but no longer than loans last.
    """
    wait_s = min(unsaved_s(step.cluster, job, step.now), step.policies.loan_s)
    clear_timers(step, job)
    step.cluster.elapsed_loans.pop(job.id, None)
    step.emit(
        ev.AttemptEnded(
            job_id=job.id,
            at=step.now.wall,
            leaving=Leaving.RETRY,
            end_reason=EndReason.PREEMPTED,
            related=to,
            failed_at=step.now.wall,
            recover=_recover(replace=False, cordoned=False),
            no_claim_before=step.now.wall_in(wait_s) if wait_s else None,
        )
    )
    if wait_s:
        step.timers.set((JobTimer.LOAN, job.id), step.now.mono_in(wait_s))
    _leave(step, job)


def shut_down(step: Step, job: Job, of: Related) -> None:
    """Go on without a host ``of`` that shuts down; workers elsewhere keep their places, and no budget pays for it."""
    story, away = Story(of, step.now.wall), frozenset({of.host})
    retry(step, job, ev.Failure(), EndReason.HOST_SHUTDOWN, story, away=away, replace=True)


def leave(step: Step, job: Job) -> None:
    """Do now what the ranks were warned of, if they were: give way, or go on without a host."""
    planned = job.leave
    if planned is None or job.stopping:
        return
    if planned.end_reason is EndReason.PREEMPTED:
        give_way(step, job, planned.related)
    else:
        shut_down(step, job, planned.related)


def await_hosts(step: Step, job: Job) -> None:
    """The job waits from now on, as long as it may."""
    if job.gang.max_wait_s:
        step.timers.set((JobTimer.EXPIRE, job.id), step.now.mono_in(job.gang.max_wait_s))


def _recover(*, replace: bool, cordoned: bool) -> Recover:
    if replace:
        return Recover.WORKER_RESCHEDULE
    return Recover.JOB_RESCHEDULE_WITH_CORDON if cordoned else Recover.JOB_RESCHEDULE


def _leave(step: Step, job: Job) -> None:
    if job.vacating is Leaving.RETRY:
        await_hosts(step, job)
    stop_workers(step, job)
    step.capacity_freed = True
    on_left(step, job)


def stop_workers(step: Step, job: Job) -> None:
    """Order workers of a job that ends or leaves its places to stop, but those that are about to say they are empty.

    A shim whose ranks have ended by themselves ends what they left behind, and its agent reports that. What is parked
    for a warm start ends only by an order.
    """
    ended, empty = job.exits_now(), step.cluster.runtime_of(job.id).empty
    by_themselves = {rank for rank, exit_ in ended.items() if exit_.reason in ENDED_BY_THEMSELVES}
    for member in (job.gang.members[index] for index in job.awaited):
        if job.gang.warm is not None or member.index in empty or not by_themselves.issuperset(member.ranks):
            step.touch(job, member.index)


def on_left(step: Step, job: Job) -> None:
    """If no worker of the attempt is left: pause the job, or let it be placed again."""
    if job.outcome is not None or job.vacating is None or job.awaited:
        return
    if job.vacating is Leaving.PAUSE:
        step.emit(ev.JobPaused(job_id=job.id, at=step.now.wall))
    step.capacity_freed = True


# --- Pause and resume ---------------------------------------------------------------------------------------------


def on_pause(step: Step, asked: PauseAsked) -> None:
    """Stop the job's processes and give its hosts up, until it is resumed. Asking twice changes nothing."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return
    if job.terminal or job.outcome is not None or job.launch.primary_done_at is not None:
        state = job.state.name if job.terminal else "ending"
        fix = "Submit it again." if job.terminal else "Wait for its end."
        step.do(Refuse(asked.token, WrongState(f"The job {job.id} is {state} and can't be paused.", fix=fix)))
        return
    ask_pause(step, job, asked.by)
    step.do(Reply(asked.token, job.id))


def ask_pause(step: Step, job: Job, by: str) -> None:
    """Pause a job that goes on, once its ranks have had the time that they want to be warned."""
    if job.state is JobState.PAUSED or job.vacating is Leaving.PAUSE or job.pause_due is not None:
        return
    warning = job.gang.warning if is_running(job) else None
    due = step.now.wall_in(warning.before_s) if warning else None
    step.emit(ev.PauseRequested(job_id=job.id, at=step.now.wall, by=by, due=due))
    step.timers.clear((JobTimer.EXPIRE, job.id))
    if warning and due is not None:
        warn(step, job, due, PAUSE)
        step.timers.set((JobTimer.PAUSE, job.id), step.now.mono_in(warning.before_s))
    else:
        pause(step, job)


def pause(step: Step, job: Job) -> None:
    """The workers are stopped, if there are any. Nothing where the job ends, or its attempt."""
    if job.terminal or job.outcome is not None or job.state is JobState.PAUSED:
        return
    if job.vacating is None and job.awaited:
        clear_timers(step, job)
        step.emit(
            ev.AttemptEnded(job_id=job.id, at=step.now.wall, leaving=Leaving.PAUSE, end_reason=EndReason.PAUSED)
        )
        _leave(step, job)
    elif not job.awaited:
        clear_timers(step, job)
        step.emit(ev.JobPaused(job_id=job.id, at=step.now.wall))
        step.capacity_freed = True


def on_warned(step: Step, job: Job, *, pauses: bool) -> None:
    """Pause a job, or have it leave, whose ranks were warned and have had time to exit."""
    if not pauses:
        leave(step, job)
    elif job.pause_due is not None:
        pause(step, job)


def on_resume(step: Step, asked: ResumeAsked) -> None:
    """Let a paused job wait for hosts again, where it stood by its priority and the time of its submission."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return
    if job.state is not JobState.PAUSED:
        doing = "being paused" if job.vacating is Leaving.PAUSE else job.state.name
        problem = f"The job {job.id} is {doing}; only a PAUSED job can be resumed."
        fix = "Wait until it is." if job.vacating is Leaving.PAUSE else f"See: holdfast job show {job.id}"
        step.do(Refuse(asked.token, WrongState(problem, fix=fix)))
        return
    step.emit(ev.JobResumed(job_id=job.id, at=step.now.wall, by=asked.by))
    if job.id in step.cluster.queue:
        await_hosts(step, job)
    step.capacity_freed = True
    step.do(Reply(asked.token, job.id))
