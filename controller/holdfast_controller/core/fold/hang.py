"""Fold of events of hangs: keeps each job's list of hangs."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job

MOST_HANGS = 100
"""A job's newest hangs that are kept; their numbers go on counting."""
HangEvent = ev.HangNoticed | ev.HangDiagnosed | ev.HangJudged | ev.HangStuck | ev.HangOver | ev.JobHeld


def fold_hang(job: Job, event: HangEvent) -> None:
    """Apply ``event`` to the newest hang, or begin one."""
    match event:
        case ev.HangNoticed():
            del job.hangs[: max(0, len(job.hangs) + 1 - MOST_HANGS)]
            job.hangs.append(
                Hang(
                    number=job.hangs[-1].number + 1 if job.hangs else 1,
                    generation=event.generation,
                    since=event.since,
                    noticed_at=event.at,
                    rule=event.rule,
                    sentence=event.sentence,
                    suspects=event.suspects,
                    hosts=event.hosts,
                    step=event.step,
                )
            )
        case ev.HangDiagnosed():
            hang = job.hangs[-1]
            hang.stacks, hang.diagnosed_at = event.stacks, event.at
            _name(hang, event)
        case ev.HangJudged():
            hang = job.hangs[-1]
            hang.outcome, hang.note, hang.judged_at = event.outcome, event.note, event.at
            _name(hang, event)
        case ev.HangStuck():
            hang = job.hangs[-1]
            hang.stuck_hosts = (*hang.stuck_hosts, event.host)
            words = f"{event.host} could not be emptied" + (f": {event.why}" if event.why else "")
            hang.note = f"{hang.note}; {words}" if hang.note else words
        case ev.HangOver():
            hang = job.hangs[-1]
            hang.note, hang.over_at = event.note, event.at
            # That it would have been restarted stays on record: it is what a trial run is for.
            if hang.outcome is not HangOutcome.WOULD_RESTART:
                hang.outcome, hang.judged_at = HangOutcome.OVER, event.at
        case ev.JobHeld():
            job.held_until = event.until
        case _:
            assert_never(event)


def close_hang(job: Job, at: Wall, why: str) -> None:
    """End the newest hang, where it is open, with its job or generation. Its recorded outcome stays."""
    hang = job.hangs[-1] if job.hangs else None
    if hang is None or not hang.open:
        return
    hang.over_at = at
    if hang.outcome is None:
        hang.outcome, hang.note, hang.judged_at = HangOutcome.ENDED, why, at


def _name(hang: Hang, event: ev.HangDiagnosed | ev.HangJudged) -> None:
    if event.suspects:
        hang.suspects, hang.hosts = event.suspects, event.hosts
    if event.rule is not None and event.since is not None:
        hang.rule, hang.sentence, hang.since = event.rule, event.sentence, event.since
