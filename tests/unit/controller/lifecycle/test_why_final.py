"""A job that is not tried again says why: which budget is spent, or what its end makes of another launch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.lifecycle.test_failure_policy import NOWHERE, R, ended, made

from holdfast._session.reports import Exit
from holdfast_controller.core.lifecycle.failure_policy import TABLE, Cause, Fail, Way, decide
from holdfast_controller.core.model.job import Job


def test_the_reason_why_a_job_is_not_tried_again_has_its_spent_budget() -> None:
    found = made()
    abort = ended(R.SIGNALED, None, 6)
    found.budgets.spent.transient_restarts = 3
    assert _why_final(found, abort, Cause.TRANSIENT) == (
        "3 of 3 restarts after ends that may be transient, such as an abort or a segmentation fault, are spent; "
        "it is not tried again."
    )
    most = found.gang.max_worker_restarts
    found.budgets.spent.worker_restarts[1] = most
    found.budgets.spent.job_retries = found.gang.retries.job_retries
    assert _why_final(found, ended(R.NONZERO_EXIT, 1), Cause.USER_ERROR) == (
        f"{most} of {most} restarts in place for the program's own errors are spent, and 3 of 3 retries of the job "
        "are spent; it is not tried again."
    )
    found.gang = replace(found.gang, max_worker_restarts=0, retries=replace(found.gang.retries, job_retries=0))
    assert _why_final(found, ended(R.NONZERO_EXIT, 1), Cause.USER_ERROR) == (
        "Restarts in place for the program's own errors are not allowed, and retries of the job are not allowed; "
        "it is not tried again."
    )


@pytest.mark.parametrize("cause", [each for each in Cause if TABLE[each].way is Way.NOWHERE])
def test_each_end_that_is_never_tried_again_says_why(cause: Cause) -> None:
    assert (
        _why_final(made(), ended(R.NONZERO_EXIT, 1), cause) == f"{TABLE[cause].why_final}; it is not tried again."
    )
    assert TABLE[cause].why_final


def _why_final(job: Job, exit_: Exit, cause: Cause) -> str:
    found = decide(job, job.gang.members[1], exit_, cause, NOWHERE)
    assert isinstance(found, Fail)
    return found.error.why_final
