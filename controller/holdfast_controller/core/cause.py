"""Who failed first. What is reported first need not have happened first, and a generation's last exits may be heard
only once the next one is under way; so the answer is looked at again as they come in.
"""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model import Job
from holdfast_controller.core.restart import first_failure
from holdfast_controller.core.steps import Step


def name_cause(step: Step, job: Job) -> None:
    """If another rank of the last generation failed before the one that was reported first: say so, let it pay."""
    recovery = job.recoveries[-1] if job.recoveries else None
    if recovery is None or recovery.generation != job.generation or recovery.charged is None:
        return
    found = first_failure(job, job.generation - 1)
    if found is None:
        return
    member, exit_ = found
    related = f"{member.name} rank {exit_.rank}"
    if related != recovery.related:
        step.emit(
            ev.CauseFound(
                job.id,
                step.now.wall,
                job.generation,
                exit_.reason.name,
                related,
                exit_.end_time or step.now.wall,
                member.index,
            )
        )
