"""In which order jobs wait for hosts."""

from __future__ import annotations

from holdfast_controller.core.model import Cluster, Job, Leaving


def in_order(cluster: Cluster) -> list[Job]:
    """Waiting jobs, the next one first: those that were running, then by priority, then by time of submission."""
    return sorted((cluster.jobs[name] for name in cluster.queue), key=_turn)


def _turn(job: Job) -> tuple[bool, int, int]:
    return job.leaving is not Leaving.RETRY, -job.gang.priority, job.number
