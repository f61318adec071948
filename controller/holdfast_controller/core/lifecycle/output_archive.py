"""Agents' reports of output that they copy to jobs' base output directories, maybe long after a job's end."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.step.commands import ArchiveReported
from holdfast_controller.core.step.step import Step


def on_archived(step: Step, reported: ArchiveReported) -> None:
    """Keep what is new, from a host that the worker has been placed on."""
    job = step.cluster.jobs.get(reported.job_id)
    index = job.gang.index_by_name.get(reported.worker) if job is not None else None
    if job is None or index is None:
        return
    if reported.host not in {attempt.places[index].host for attempt in job.attempts if attempt.places}:
        return
    if job.unarchived.get(reported.worker, "") != reported.problem:
        step.emit(
            ev.OutputArchived(job_id=job.id, at=step.now.wall, worker=reported.worker, problem=reported.problem)
        )
