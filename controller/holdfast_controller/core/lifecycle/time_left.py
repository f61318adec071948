"""Whether a job has time for another launch: one that its timeout would end before it begins its work helps no one.

How long the program takes to begin its work is measured in the job itself, from its ranks' start to the first sign of
progress: in the generation that ends, or in the newest before it that had one. Without such a measure there is time.
"""

from __future__ import annotations

from holdfast._session.reports import Exit
from holdfast_controller.core.lifecycle.error_report import error_of, final
from holdfast_controller.core.lifecycle.failure_policy import Answer, Fail
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer


def why_too_late(step: Step, job: Job) -> str:
    """A clause on why no launch can begin its work before the job's timeout; empty where one can."""
    due = step.timers.due.get((JobTimer.TIMEOUT, job.id))
    starts_s = _start_s(step, job)
    if due is None or starts_s is None:
        return ""
    left_s = due - step.now.mono
    if left_s > starts_s:
        return ""
    return f"Its time is over in {max(left_s, 0):.0f} s, and it takes {starts_s:.0f} s to begin its work"


def in_time(step: Step, job: Job, member: Member, exit_: Exit, answer: Answer) -> Answer:
    """The answer to a failure, unless it is a launch that comes too late: then the failure is the job's."""
    why = "" if isinstance(answer, Fail) else why_too_late(step, job)
    return Fail(final(error_of(member, exit_), why)) if why else answer


def _start_s(step: Step, job: Job) -> float | None:
    runtime, ledger = step.cluster.runtime.get(job.id), job.ledger
    if ledger is None:
        return None
    watch = runtime.progress if runtime is not None else None
    of_this = watch is not None and watch.generation == job.generation and not ledger.starting
    if of_this and watch is not None and watch.began is not None:
        return _between_s(ledger.started_at, watch.began)
    if ledger.unsettled is not None:
        return _between_s(ledger.unsettled.progress.since, ledger.unsettled.progress.began)
    return None


def _between_s(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else max(end - start, 0) / 1000
