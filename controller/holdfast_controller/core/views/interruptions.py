"""The words for what has interrupted a job, and for what was done about it."""

from __future__ import annotations

from holdfast_controller.core.lifecycle.recovery_phases import phases_of
from holdfast_controller.core.messages.job import exit_in_words
from holdfast_controller.core.messages.maintenance import span
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.model.clock import Now, moment
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason, Recover, related_in_words

CAUSES: dict[EndReason, str] = {
    EndReason.COMPLETED: "{who} had ended",
    EndReason.NONZERO_EXIT: "{who} failed",
    EndReason.SIGNALED: "{who} was killed by a signal",
    EndReason.OUT_OF_MEMORY: "{who} ran out of memory",
    EndReason.CANNOT_START: "{who} could not be started",
    EndReason.STOPPED: "{who} was stopped",
    EndReason.HANG_KILLED: "{who} was killed in a hang",
    EndReason.LOST_SHIM_DIED: "the shim of {who} died",
    EndReason.LOST_REBOOT: "{who}: its host rebooted",
    EndReason.LOST_HOST: "{who} was lost",
    EndReason.NOT_STARTED: "{who} was not started",
    EndReason.LOST_RECORD: "{who}: the record of its end was lost",
    EndReason.PORT_TAKEN: "{who}: another process had taken its port",
    EndReason.HANG: "it hung, at {who}",
    EndReason.CUT_OFF: "{who} was cut off from the controller",
    EndReason.HARDWARE_FAULT: "{who}: a hardware fault",
    EndReason.HOST_UNFIT: "{who} failed its checks",
    EndReason.RESTART_REQUESTED: "a restart, {who}",
    EndReason.DRAINED: "{who} was drained",
    EndReason.HOST_SHUTDOWN: "{who} shut down",
    EndReason.PREEMPTED: "{who} was placed first",
    EndReason.PAUSED: "a pause, {who}",
    EndReason.CONTROLLER_RESTORED: "the controller was restored from a backup",
}
"""The cause of an interruption as a clause; ``who`` is what it is about."""

_PLACED_AGAIN = {
    Recover.PROC_RESTART: "relaunched in place as generation {}",
    Recover.WORKER_RESCHEDULE: "placed again in part, with its other workers kept where they are, as generation {}",
    Recover.JOB_RESCHEDULE: "placed again as generation {}",
    Recover.JOB_RESCHEDULE_WITH_CORDON: "placed again as generation {}, and the host cordoned",
}


def what_happened(job: Job, now: Now) -> str:
    """The history of a job in one sentence; never empty."""
    last = job.recoveries[-1] if job.recoveries else None
    hang = job.hangs[-1] if job.hangs else None
    if job.terminal and job.error is not None:
        before = "" if last is None else f"; before that, {_times(job)}"
        return f"{job.error.message.rstrip('.')}{before}"
    if hang is not None and hang.outcome is HangOutcome.OVER and (last is None or hang.since > last.started_at):
        return f"It stood still at {moment(hang.since, now)} and went on by itself: {hang.note}"
    if hang is not None and hang.open and hang.generation == job.generation:
        return f"{hang.sentence[:1].upper()}{hang.sentence[1:]}"
    if last is not None:
        newest = "" if len(job.recoveries) == 1 else ", the last"
        return f"{_times(job)}{newest} at {moment(last.failed_at or last.started_at, now)}: {_cause(job, last)}"
    if job.state is JobState.PAUSED and job.started_at is not None:
        by = f" by {job.paused_by}" if job.paused_by else ""
        return f"It ran from {moment(job.started_at, now)} on, and was paused{by}"
    if job.started_at is not None:
        return f"Nothing: it began to run at {moment(job.started_at, now)} and was not interrupted"
    return f"{job.owner} submitted it at {moment(job.created_at, now)}"


def what_was_done(job: Job, now: Now) -> str:
    """The answer of Holdfast to the newest interruption or hang; never empty."""
    hang = job.hangs[-1] if job.hangs else None
    if hang is not None and hang.open and hang.generation == job.generation:
        return _about_hang(hang, now)
    if job.terminal and job.error is not None and job.error.why_final:
        return job.error.why_final.rstrip(".")
    if job.state is JobState.PAUSED:
        return "Its ranks were stopped, and its hosts are free for others"
    made = [recovery for recovery in job.recoveries if recovery.generation <= job.generation]
    if job.state is JobState.FAILED:
        if not made:
            return "It was not relaunched"
        often = "once" if len(made) == 1 else f"{len(made)} times, the last time"
        return f"It was relaunched {often} as generation {made[-1].generation}; it is not tried again"
    if not job.recoveries:
        return "Nothing had to be done"
    last, waits = job.recoveries[-1], job.recoveries[-1] not in made
    if waits and job.outcome is not None:
        return "It was to be placed again, and its end was decided before"
    spent, found = phases_of(last), ""
    if last.end_reason is EndReason.HANG:
        found = f"noticed after {span(spent.detect_s)}, "
    doing = _PLACED_AGAIN[last.recover].format(last.generation)
    if last.ended_at is None or waits:
        verb = "Waits to be" if job.state is JobState.QUEUED and not job.awaited else "Is being"
        return f"{verb} {doing}, since {moment(last.started_at, now)}"
    doing = f"{found}{doing}"
    ran = f"; all ran again after {span(spent.lost_s)}" if spent.lost_s is not None and _ran(job, last) else ""
    back = ""
    if last.step is not None and spent.catch_up_s is not None:
        back = f", back at step {last.step:,.0f} after {span(spent.catch_up_s)} more"
    elif last.step is not None and ran and not job.terminal and last.generation == job.generation:
        back = f", not yet back at step {last.step:,.0f}"
    return f"{doing[0].upper()}{doing[1:]}{ran}{back}"


def _times(job: Job) -> str:
    count = len(job.recoveries)
    return "1 interruption" if count == 1 else f"{count} interruptions"


def _ran(job: Job, recovery: Recovery) -> bool:
    """Whether the launch of the newest recovery ran: it may have been stopped before."""
    launches = (job.launch.generation, *job.launch.relaunched.values())
    return bool(job.started) and recovery.generation in launches


def _cause(job: Job, recovery: Recovery) -> str:
    reason, who = recovery.end_reason, related_in_words(recovery.related, recovery.end_reason)
    if reason is EndReason.HANG:
        hang = next((h for h in reversed(job.hangs) if h.outcome is HangOutcome.RESTARTED), None)
        return f"it hung: {hang.stacks or hang.sentence}" if hang is not None else CAUSES[reason].format(who=who)
    ranks = recovery.related.ranks
    if recovery.failed_generation is not None and ranks:
        exit_ = job.exit_of(recovery.failed_generation, ranks[0].rank)
        if exit_ is not None and exit_.reason.name == reason.name:
            return f"{who}: {exit_in_words(exit_)}"
    return CAUSES[reason].format(who=who or "a worker")


def _about_hang(hang: Hang, now: Now) -> str:
    stacks = f": {hang.stacks}" if hang.stacks else ""
    if hang.diagnosed_at is not None:
        return f"The stacks of all ranks were recorded at {moment(hang.diagnosed_at, now)}{stacks}"
    return (
        f"Its subscribers were notified at {moment(hang.noticed_at, now)}; the stacks of all ranks are being taken"
    )
