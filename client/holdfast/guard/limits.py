"""The time limit of the scheduler: the job gets it as its timeout, is warned ahead of it, and ends by its name. Pure.

The job's own timeout is what is left of the scheduler's time, so nothing is launched that could not begin its work
before, and the ranks are stopped in order. The scheduler ends the guard itself, so that its accounting says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2

SEEN_S = 5.0
"""A signal so shortly before the limit, or after it, is the limit's."""
SLURM_ENDS_S = 75.0
"""Slurm looks every half minute whose time is over, and calls a step that has left by itself FAILED."""
LEAST_S = 1.0
_DEADLINE_EXCEEDED = 4
"""Of gRPC."""


def give(job: job_pb2.CustomJob, left_s: float | None, warning: tuple[str, float] | None) -> str:
    """Give the job the time that is left, None where it is unknown; returns why its ranks get no warning, if so."""
    scheduling = job.job_spec.scheduling
    if left_s is not None:
        left_s = max(left_s, LEAST_S)
        scheduling.timeout.FromMilliseconds(round(1000 * left_s))
    if warning is None:
        return ""
    name, before_s = warning
    if left_s is None:
        return f"no time limit is known, so the ranks get no {name}: say it by --time-limit"
    if before_s >= left_s:
        return f"only {left_s:.0f} s are left until the time limit, so the ranks get no {name}"
    scheduling.warning_signal.signal = name
    scheduling.warning_signal.before.FromMilliseconds(round(1000 * before_s))
    return ""


def reached(job: job_pb2.CustomJob) -> bool:
    """Whether the job has ended since its time was over."""
    from holdfast.v1 import job_pb2

    return job.state == job_pb2.JOB_STATE_FAILED and job.error.code == _DEADLINE_EXCEEDED
