"""Spare tasks: they start no ranks until they take the place of a task that is gone. Pure.

The controller moves the worker as in any cluster, once the task's host has been silent for its lease: by then its shim,
should it still live, has stopped the ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.guard.allocation import Allocation

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2

LEASE_S, LOST_S = 20, 22
"""A host that is cut off has stopped its ranks after the first, and after the second they start elsewhere."""


def check(tasks: int, spares: int) -> None:
    """Raises ``ConfigError`` where the spares leave no task for a rank."""
    if spares >= tasks:
        has = "is one task" if tasks == 1 else f"are {tasks} tasks"
        raise ConfigError(
            f"--spares {spares} leaves no task for the ranks: there {has}.",
            fix="Ask the scheduler for as many tasks more.",
        )


def prepare(job: job_pb2.CustomJob, place: Allocation, workers: int) -> None:
    """Have the job go on without a host that is lost, and its launcher's variables tell what RANK does.

    The number of a spare's task is above those of all ranks, and the number of tasks is more than there are ranks.
    """
    from holdfast.v1 import spec_pb2

    job.job_spec.fault_tolerance.disconnect_policy = spec_pb2.DISCONNECT_POLICY_STOP_AND_REPLACE
    values = {**dict.fromkeys(place.numbers, "$(GROUP_RANK)"), **dict.fromkeys(place.counts, str(workers))}
    for pool in job.job_spec.worker_pool_specs:
        pool.process_spec.env.extend(
            spec_pb2.EnvVar(name=name, value=value) for name, value in values.items() if name
        )


def settings() -> dict[str, object]:
    """The controller's settings: it gives up a host sooner than it would if there were none to take its place."""
    return {"heartbeat_interval": 3, "suspect_after": 9, "lease": LEASE_S, "lost_after": LOST_S}


def on_gone(gone: Mapping[int, str], known: set[int], spares: int) -> tuple[str, bool]:
    """Say which tasks are gone that were not ``known`` to be, and whether the job can go on without them."""
    news = [f"{task} on {gone[task]}" for task in sorted(gone) if task not in known and gone[task]]
    if not news:
        return "", len(gone) <= spares
    which = f"ask {news[0]} is" if len(news) == 1 else f"asks {', '.join(news)} are"
    left = spares - len(gone)
    if left < 0:
        none = " and no spare is left" if spares else ""
        return (
            f"T{which} gone before {'its' if len(news) == 1 else 'their'} time{none}, so the job has ended.",
            False,
        )
    have = f"{left or 'no'} spare{'s are' if left != 1 else ' is'} left"
    return f"t{which} gone: {have}", True
