"""Hangs in words: what was seen, when Holdfast acts by itself, and the command that does it now."""

from __future__ import annotations

from typing import assert_never

from holdfast._base.job_file.choices import HangAction
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall, time_of_day
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.job import Job

HangEvent = ev.HangNoticed | ev.HangDiagnosed | ev.HangJudged | ev.HangStuck | ev.HangOver | ev.JobHeld

_JUDGED = {
    HangOutcome.RESTARTED: "hang confirmed, relaunching in place",
    HangOutcome.WOULD_RESTART: "hang confirmed; with --restart-on-hang the gang would be relaunched in place now",
    HangOutcome.SUPPRESSED: "hang confirmed, not acted on",
    HangOutcome.BUDGET_SPENT: "hang confirmed, but no hang restarts are left",
}
_LEFT = frozenset({HangOutcome.WOULD_RESTART, HangOutcome.SUPPRESSED})


def hang_message(event: HangEvent, job: Job) -> str:
    """The sentence for an event of a hang; ``job`` is in the state right after it."""
    match event:
        case ev.HangNoticed():
            whom = f"; suspected: {' and '.join(map(str, event.suspects))}" if event.suspects else ""
            return f"possible hang ({event.rule.value}): {event.sentence}{whom}; {_what_follows(event, job)}"
        case ev.HangDiagnosed():
            return f"stack dumps: {event.stacks or 'none could be taken'}{_found_by(event)}"
        case ev.HangJudged():
            note = f": {event.note}" if event.note else ""
            now = f"; do so with: {_restart(job)}" if event.outcome in _LEFT else ""
            return _JUDGED[event.outcome] + note + _found_by(event) + now
        case ev.HangStuck():
            why = f": {event.why}" if event.why else ""
            return (
                f"cannot restart yet: processes of {event.worker} on {event.host} survive SIGKILL{why}; "
                f"it goes on by itself once they are gone, or by: holdfast host fence {event.host}"
            )
        case ev.HangOver():
            return f"no longer hangs: {event.note}"
        case ev.JobHeld():
            if event.until is None:
                return f"action on hangs turned on by {event.by}"
            until = f"until {time_of_day(event.until)}, or: holdfast job hang-action {job.id} on"
            return f"action on hangs turned off by {event.by} {until}"
        case _:
            assert_never(event)


def in_seconds(seconds: float) -> str:
    """A span to come, such as ``30 s`` or ``12 min``."""
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _what_follows(event: ev.HangNoticed, job: Job) -> str:
    """The action that follows and its time, and the command that takes it now."""
    if job.gang.hang.action is not HangAction.RESTART:
        return f"nothing is done about it without --restart-on-hang; relaunch it with: {_restart(job)}"
    if event.acts_at is None:
        return f"it is left alone; relaunch it with: {_restart(job)}"
    acts_at = max(event.acts_at, event.at, job.held_until or Wall(0.0))
    left_s = acts_at - event.at
    when = f"in {in_seconds(left_s)}" if left_s >= 1 else "once its stacks are taken"
    if job.gang.retries.disabled or job.budgets.hang_restarts >= job.gang.max_hang_restarts:
        then = f"{when} it goes to other hosts, if it has not, or is ended or left as it is"
        return f"no restart in place is left: unless it moves, {then}; relaunched now by: {_restart(job)}"
    return f"relaunched {when} unless it moves; now by: {_restart(job)}"


def _restart(job: Job) -> str:
    return f"holdfast job restart {job.id}"


def _found_by(event: ev.HangDiagnosed | ev.HangJudged) -> str:
    """The rule that finds the hang by now, where it is another one."""
    return f"; {event.rule.value}: {event.sentence}" if event.rule is not None else ""
