"""Decides what a task exits with, and what is said of the whole. Pure."""

from __future__ import annotations

from holdfast._base.proto_values import seconds, short_name
from holdfast.v1 import job_pb2


def of_task(job: job_pb2.CustomJob, status: int, host: str, *, first: bool) -> int:
    """The exit status of the task on ``host``, for a job that ended with ``status``.

    The task whose rank is to blame exits as that rank did, all others with 0, so a launcher that takes the highest code
    or names the task that failed tells the cause. Where no rank is to blame, the ``first`` task has the job's status.
    """
    if not status or not job.error.HasField("rank"):
        return status if first else 0
    blamed = {worker.host for worker in job.workers for each in worker.exits if each.rank == job.error.rank}
    blamed |= {worker.host for worker in job.workers for each in worker.ranks if each.rank == job.error.rank}
    return status if (host in blamed if blamed else first) else 0


def summary(job: job_pb2.CustomJob, record: str, *, limit: bool = False) -> str:
    """``2 recoveries, 41 s lost; see holdfast-17.0``; empty where nothing happened.

    ``limit``: the scheduler's time limit has ended it.
    """
    count, hangs = len(job.recoveries), len(job.hangs)
    lost = sum(seconds(each.lost) for each in job.recoveries)
    said = [f"{count} {'recovery' if count == 1 else 'recoveries'}, {lost:.3g} s lost"] if count else []
    said += [f"{hangs} hang{'s' * (hangs != 1)} noticed"] if hangs else []
    if not said and job.state == job_pb2.JOB_STATE_SUCCEEDED:
        return ""
    if limit:
        said += ["ended by the time limit"]
    else:
        said += [] if job.state == job_pb2.JOB_STATE_SUCCEEDED else [_end(job)]
    return "; ".join(said) + f"; see {record}"


def _end(job: job_pb2.CustomJob) -> str:
    state = short_name(job_pb2.JobState, job.state).lower()
    why = " ".join(filter(None, (job.error.message.strip(), job.error.raised, job.error.why_final)))
    return f"{state}: {why}" if why else state
