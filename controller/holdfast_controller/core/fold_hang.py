"""What the events of hangs mean: the part of ``fold`` that keeps a job's list of them."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core import events as ev
from holdfast_controller.core.model import Hang, Job

HangEvent = ev.HangNoticed | ev.HangDiagnosed | ev.HangJudged | ev.HangOver | ev.JobHeld


def fold_hang(job: Job, event: HangEvent) -> None:
    """Apply ``event`` to the newest hang, or begin one."""
    match event:
        case ev.HangNoticed():
            job.hangs.append(
                Hang(
                    number=len(job.hangs) + 1,
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
            job.hangs[-1].stacks, job.hangs[-1].diagnosed_at = event.stacks, event.at
        case ev.HangJudged():
            job.hangs[-1].outcome, job.hangs[-1].note = event.outcome, event.note
            job.hangs[-1].judged_at = event.at
        case ev.HangOver():
            job.hangs[-1].outcome, job.hangs[-1].note = "OVER", event.note
            job.hangs[-1].judged_at = event.at
        case ev.JobHeld():
            job.held_until = event.until
        case _:
            assert_never(event)
