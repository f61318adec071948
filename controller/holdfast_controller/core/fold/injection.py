"""Fold of injected faults: keeps the newest of each job."""

from __future__ import annotations

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.injection import Injection
from holdfast_controller.core.model.job import Job

MOST = 100


def fold_injection(job: Job, event: ev.FaultInjected | ev.FaultNotInjected) -> None:
    """Note a fault, or forget the rank's newest one: its host could not inject it."""
    if isinstance(event, ev.FaultInjected):
        job.injections.append(Injection(event.generation, event.rank, event.until))
        del job.injections[:-MOST]
        return
    for index in reversed(range(len(job.injections))):
        if (job.injections[index].generation, job.injections[index].rank) == (event.generation, event.rank):
            del job.injections[index]
            return
