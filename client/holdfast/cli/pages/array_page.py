"""Arrays as lists and pages show them: in one line, or with all their elements."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.cli.kit.console import OUT, coloured, say, styled
from holdfast.cli.pages.job_tables import write_jobs
from holdfast.v1 import job_pb2


def counts(array: job_pb2.JobArray) -> str:
    """How far an array is, such as "4 running, 12 waiting, 4 done, 0 failed"."""
    return f"{array.running} running, {array.waiting} waiting, {array.done} done, {array.failed} failed"


def extent(array: job_pb2.JobArray) -> str:
    """How large it is, such as "20 jobs, 4 at once"."""
    jobs = "1 job" if array.count == 1 else f"{array.count} jobs"
    return f"{jobs}, {array.at_once} at once" if array.at_once else jobs


def folded(job: job_pb2.CustomJob) -> job_pb2.CustomJob:
    """The array of an element as one row of a list of jobs; another job as it is."""
    if not job.HasField("array"):
        return job
    shown = job_pb2.CustomJob()
    shown.CopyFrom(job)
    for name in ("error", "step", "step_total", "start_time", "end_time", "attempt", "generation", "wait_reason"):
        shown.ClearField(name)
    shown.id, shown.state = job.array.id, _state(job.array)
    shown.summary.headline = f"Array of {extent(job.array)}: {counts(job.array)}"
    return shown


def _state(array: job_pb2.JobArray) -> job_pb2.JobState.ValueType:
    if array.running:
        return job_pb2.JOB_STATE_RUNNING
    if array.waiting:
        return job_pb2.JOB_STATE_QUEUED
    return job_pb2.JOB_STATE_FAILED if array.failed else job_pb2.JOB_STATE_SUCCEEDED


def write_array(elements: Sequence[job_pb2.CustomJob], now: float, *, wide: bool) -> None:
    """The page of an array on stdout."""
    array, colour = elements[0].array, coloured(OUT)
    say(
        f"{styled(array.id, '1', colour=colour)}  array of {extent(array)}",
        styled(f"  {'now':<10}", "2", colour=colour) + f"  {counts(array)}",
        "",
    )
    write_jobs(elements, now, wide=wide, hint="")
