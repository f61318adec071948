"""Hangs of a job whose restarts in place are spent, or that forbids them: other hosts are tried once, or it ends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenarios.hang_stories import hangs_until_restart, job_of
from tests.scenarios.training import Training, training

from holdfast_controller.core.model.gang import Retries
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.recovery import EndReason, Recover


def hosts(program: Training) -> list[str]:
    return [place.host for place in job_of(program).places]


def hung_twice(*, hosts: int = 4, **rules: Any) -> tuple[Training, list[str]]:
    """A job with one hang restart to spend hangs a second time; what the acting look has told."""
    program = training(hosts=hosts, max_hang_restarts=1, **rules)
    program.step = 700
    assert "a hang RESTARTED" in hangs_until_restart(program)
    program.restarts()
    program.trains(300)
    return program, hangs_until_restart(program)


def placed_again(program: Training) -> None:
    """The attempt is gone from its hosts, and the next one trains on those that it got."""
    generation = job_of(program).generation
    for rank in (0, 1):
        program.world.exit("a", rank, "HANG_KILLED:9", generation)
    program.world.empty("a")
    program.restarts()
    program.trains(300)


def test_spent_hang_restarts_are_followed_by_one_try_on_other_hosts() -> None:
    program, told = hung_twice(retries=3)
    note = "1 restart led nowhere: the job is placed again, on other hosts if it can be"
    assert told[1] == f"a hang RESTARTED: {note}"
    assert told[2].startswith("a leaves to RETRY: HANG of no rank in particular")
    job = job_of(program)
    assert (job.hangs[-1].outcome, job.hangs[-1].note) == (HangOutcome.RESTARTED, note)
    placed_again(program)
    assert hosts(program) == ["host-2", "host-3"]
    assert (job.attempt, job.budgets.spent.job_retries) == (2, 1)
    recovery = job.recoveries[-1]
    assert (recovery.end_reason, recovery.recover) == (EndReason.HANG, Recover.JOB_RESCHEDULE)

    told = hangs_until_restart(program)
    assert told[1:3] == ["a hang BUDGET_SPENT", "a ending FAILED"], "once, though two retries are left"


def test_progress_on_the_other_hosts_refills_the_budget() -> None:
    program, _ = hung_twice(retries=3)
    placed_again(program)
    program.step = 900
    program.trains(60)
    assert "a hang RESTARTED" in hangs_until_restart(program)
    job = job_of(program)
    assert (job.attempt, job.budgets.hang_restarts, job.budgets.spent.job_retries) == (2, 1, 0)


@pytest.mark.parametrize(
    "rules",
    [{"hosts": 2, "retries": 3}, {"hosts": 3, "retries": 3}, {"retries": 0}],
    ids=["no other host", "one for two workers", "no retry is allowed"],
)
def test_job_that_may_or_can_not_go_elsewhere_ends(rules: dict[str, int]) -> None:
    program, told = hung_twice(**rules)
    assert told[1:3] == ["a hang BUDGET_SPENT", "a ending FAILED"]
    assert job_of(program).attempt == 1


def test_cordoned_hosts_and_those_that_the_job_may_not_have_are_no_others() -> None:
    program = training(hosts=4, max_hang_restarts=1, retries=3)
    program.world.cordon("host-3")
    hangs_until_restart(program)
    program.restarts()
    program.trains(300)
    assert hangs_until_restart(program)[1:3] == ["a hang BUDGET_SPENT", "a ending FAILED"]


def test_disabled_retries_make_the_first_hang_final() -> None:
    program = training(hosts=4, retries=0, max_hang_restarts=3)
    job = job_of(program)
    object.__setattr__(job.gang, "retries", Retries(disabled=True))
    told = hangs_until_restart(program)
    assert told[1:3] == ["a hang BUDGET_SPENT", "a ending FAILED"]
    assert job.error is not None
    assert job.error.message.startswith("The job hangs, and its disableRetries allows no restart: ")


@pytest.mark.parametrize("free", [2, 4])
def test_unconditional_retries_answer_each_further_hang_until_they_are_spent(free: int) -> None:
    program = training(hosts=free, max_hang_restarts=0)
    job = job_of(program)
    object.__setattr__(job.gang, "retries", Retries(job_retries=2, unconditional=True))
    program.step = 700
    for attempt in (2, 3):
        told = hangs_until_restart(program)
        assert "placed again, on other hosts if it can be" in told[1]
        placed_again(program)
        assert job.attempt == attempt
    assert hangs_until_restart(program)[1:3] == ["a hang BUDGET_SPENT", "a ending FAILED"]
