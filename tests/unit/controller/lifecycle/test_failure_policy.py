"""The failure policy as a table: every class of failure, whoever pays for it, with something left and without."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.unit.controller.examples import job

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.lifecycle.failure_policy import (
    HOST_MOVES,
    INTERNAL_RESTARTS,
    PORT_RETRIES,
    TABLE,
    TRANSIENT_RESTARTS,
    Cause,
    Fail,
    Reached,
    Replace,
    Restart,
    Retry,
    Way,
    backoff_s,
    classify,
    decide,
    failure_of,
)
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Task
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.placement import Placement
from holdfast_controller.core.model.recovery import Budget

R = ExitReason
NOWHERE = Reached()


def made(**retries: object) -> Job:
    """Two workers of one rank each, with every budget at its default."""
    rules = Retries(**retries)  # type: ignore[arg-type]
    found = job(Gang((Pool(2, Task(("x",)), processes=1),), retries=rules))
    found.generation = 1
    found.placement = Placement(1, (Place("h0"), Place("h1")))
    return found


def ended(reason: ExitReason, code: int | None = None, signal: int | None = None, *said: str) -> Exit:
    return Exit(1, 1, 1, reason, code, signal, stderr_tail=said)


EXAMPLES: dict[Cause, Exit] = {
    Cause.USER_ERROR: ended(R.NONZERO_EXIT, 1),
    Cause.PERMANENT: ended(R.NONZERO_EXIT, 42),
    Cause.TRANSIENT: ended(R.SIGNALED, None, 11),
    Cause.OUT_OF_MEMORY: ended(R.OUT_OF_MEMORY, None, 9),
    Cause.CANNOT_START: ended(R.CANNOT_START),
    Cause.KILLED: ended(R.SIGNALED, None, 9),
    Cause.HANG: ended(R.SIGNALED, None, 6, "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(...)"),
    Cause.HOST_LOST: ended(R.LOST_HOST),
    Cause.CUT_OFF: ended(R.STOPPED, None, 15),
    Cause.HARDWARE_FAULT: ended(R.NONZERO_EXIT, 1, None, "RuntimeError: CUDA error: uncorrectable ECC error"),
    Cause.HOST_UNFIT: ended(R.CANNOT_START),
    Cause.PORT_TAKEN: ended(R.NONZERO_EXIT, 1),
    Cause.INTERNAL: ended(R.LOST_SHIM_DIED),
}


def spend(found: Job, budget: Budget) -> None:
    """Leave nothing of a budget."""
    match budget:
        case Budget.WORKER:
            found.budgets.spent.worker_restarts[1] = found.gang.max_worker_restarts
        case Budget.TRANSIENT:
            found.budgets.spent.transient_restarts = TRANSIENT_RESTARTS
        case Budget.INTERNAL:
            found.budgets.spent.internal_errors = INTERNAL_RESTARTS
        case Budget.HANG:
            found.budgets.hang_restarts = found.gang.max_hang_restarts
        case Budget.HOST:
            found.budgets.spent.host_moves = HOST_MOVES
        case Budget.JOB:
            found.budgets.spent.job_retries = found.gang.retries.job_retries
        case Budget.NONE:
            found.budgets.port_retries = PORT_RETRIES


WITH_BUDGET = {
    Cause.USER_ERROR: Restart,
    Cause.PERMANENT: Fail,
    Cause.TRANSIENT: Restart,
    Cause.OUT_OF_MEMORY: Fail,
    Cause.CANNOT_START: Fail,
    Cause.KILLED: Restart,
    Cause.HANG: Restart,
    Cause.HOST_LOST: Replace,
    Cause.CUT_OFF: Restart,
    Cause.HARDWARE_FAULT: Replace,
    Cause.HOST_UNFIT: Replace,
    Cause.PORT_TAKEN: Restart,
    Cause.INTERNAL: Restart,
}
WITHOUT_BUDGET = WITH_BUDGET | {
    Cause.USER_ERROR: Retry,
    Cause.KILLED: Retry,
    Cause.TRANSIENT: Fail,
    Cause.HANG: Fail,
    Cause.HOST_LOST: Fail,
    Cause.CUT_OFF: Fail,
    Cause.HARDWARE_FAULT: Fail,
    Cause.HOST_UNFIT: Fail,
    Cause.INTERNAL: Fail,
}
SPENT = WITHOUT_BUDGET | {Cause.USER_ERROR: Fail, Cause.KILLED: Fail}
UNCONDITIONAL = WITHOUT_BUDGET | {cause: Retry for cause in Cause if cause is not Cause.PORT_TAKEN}
DISABLED = dict.fromkeys(Cause, Fail) | {Cause.HOST_UNFIT: Replace, Cause.PORT_TAKEN: Restart}
"""Nothing of the program ran in these two."""


def answer(found: Job, cause: Cause, reached: Reached = NOWHERE) -> type:
    return type(decide(found, found.gang.members[1], EXAMPLES[cause], cause, reached))


def test_table_and_examples_know_every_class() -> None:
    assert set(TABLE) == set(EXAMPLES) == set(WITH_BUDGET) == set(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_example_is_of_its_class(cause: Cause) -> None:
    gang = made(permanent_codes=frozenset({42})).gang
    port, unfit = cause is Cause.PORT_TAKEN, cause is Cause.HOST_UNFIT
    assert classify(gang, EXAMPLES[cause], port_taken=port, unfit=unfit) is cause


def test_a_rank_that_the_host_could_not_start_is_no_fault_of_its_program() -> None:
    gang, refused = made().gang, ended(R.CANNOT_START)
    assert classify(gang, replace(refused, host_fault=True), port_taken=False) is Cause.HOST_UNFIT
    assert classify(gang, refused, port_taken=False) is Cause.CANNOT_START


@pytest.mark.parametrize("cause", Cause)
def test_first_failure_with_every_budget_full(cause: Cause) -> None:
    assert answer(made(), cause) is WITH_BUDGET[cause]


@pytest.mark.parametrize("cause", Cause)
def test_failure_whose_own_budget_is_spent(cause: Cause) -> None:
    found = made()
    if cause is not Cause.PORT_TAKEN:
        spend(found, TABLE[cause].budget)
    assert answer(found, cause) is WITHOUT_BUDGET[cause]


@pytest.mark.parametrize("cause", Cause)
def test_failure_when_the_job_s_retries_are_spent_too(cause: Cause) -> None:
    found = made()
    if cause is not Cause.PORT_TAKEN:
        spend(found, TABLE[cause].budget)
    spend(found, Budget.JOB)
    assert answer(found, cause) is SPENT[cause]


@pytest.mark.parametrize(("cause", "other"), list(itertools.product(Cause, Budget)))
def test_what_other_failures_have_spent_costs_this_one_nothing(cause: Cause, other: Budget) -> None:
    found = made()
    if other in (TABLE[cause].budget, Budget.NONE):
        return
    spend(found, other)
    assert answer(found, cause) is WITH_BUDGET[cause]


@pytest.mark.parametrize("cause", Cause)
def test_progress_refills_what_was_spent(cause: Cause) -> None:
    found = made()
    for budget in (Budget.WORKER, Budget.TRANSIENT, Budget.INTERNAL, Budget.JOB, Budget.HANG, Budget.HOST):
        spend(found, budget)
    found.budgets.best_step = 10.0
    assert answer(found, cause, Reached(11.0)) is WITH_BUDGET[cause]
    assert answer(found, cause, Reached(10.0)) is SPENT[cause]


@pytest.mark.parametrize("cause", Cause)
def test_job_that_disables_retries_ends_with_the_first_failure_of_its_program(cause: Cause) -> None:
    assert answer(made(disabled=True), cause) is DISABLED[cause]


@pytest.mark.parametrize("cause", Cause)
def test_unconditional_retry_tries_again_whatever_it_was(cause: Cause) -> None:
    found = made(unconditional=True)
    if cause is not Cause.PORT_TAKEN:
        spend(found, TABLE[cause].budget)
    assert answer(found, cause) is UNCONDITIONAL[cause]
    spend(found, Budget.JOB)
    if TABLE[cause].way is Way.NOWHERE:
        assert answer(found, cause) is Fail


@pytest.mark.parametrize("cause", [cause for cause in Cause if TABLE[cause].suspect])
def test_second_failure_that_may_be_the_host_s_moves_the_worker_away(cause: Cause) -> None:
    found = made()
    found.budgets.suspected["h1"] = 1
    assert answer(found, cause) is Replace
    found.budgets.suspected = {"h0": 3}
    assert answer(found, cause) is WITH_BUDGET[cause]


@pytest.mark.parametrize("cause", [cause for cause in Cause if TABLE[cause].cordon])
def test_host_at_fault_takes_no_more_work(cause: Cause) -> None:
    found = made()
    told = decide(found, found.gang.members[1], EXAMPLES[cause], cause, NOWHERE)
    assert isinstance(told, Replace)
    assert told.cordon


def test_port_that_stays_taken_is_the_program_s_failure_in_the_end() -> None:
    found = made()
    found.budgets.port_retries = PORT_RETRIES
    told = decide(found, found.gang.members[1], EXAMPLES[Cause.PORT_TAKEN], Cause.PORT_TAKEN, NOWHERE)
    assert isinstance(told, Restart)
    assert (told.cause, told.charged) == (Cause.USER_ERROR, 1)
    spend(found, Budget.WORKER)
    assert answer(found, Cause.PORT_TAKEN) is Fail


# --- Classes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exit_", "cause"),
    [
        (ended(R.NONZERO_EXIT, 2), Cause.USER_ERROR),
        (ended(R.NONZERO_EXIT, 6), Cause.TRANSIENT),
        (ended(R.NONZERO_EXIT, 134), Cause.TRANSIENT),
        (ended(R.NONZERO_EXIT, 11), Cause.TRANSIENT),
        (ended(R.NONZERO_EXIT, 139), Cause.TRANSIENT),
        (ended(R.SIGNALED, None, 6), Cause.TRANSIENT),
        (ended(R.NONZERO_EXIT, 137), Cause.KILLED),
        (ended(R.SIGNALED, None, 15), Cause.KILLED),
        (ended(R.SIGNALED, None, 8), Cause.USER_ERROR),
        (ended(R.LOST_REBOOT), Cause.HOST_LOST),
        (ended(R.NOT_STARTED), Cause.INTERNAL),
        (ended(R.NONZERO_EXIT, 1, None, "Watchdog caught collective operation timeout"), Cause.USER_ERROR),
    ],
)
def test_end_is_classified(exit_: Exit, cause: Cause) -> None:
    assert classify(made().gang, exit_, port_taken=False) is cause


def test_job_s_own_lists_of_codes_go_before_ours() -> None:
    gang = made(permanent_codes=frozenset({139, 3}), transient_codes=frozenset({7})).gang
    assert classify(gang, ended(R.SIGNALED, None, 11), port_taken=False) is Cause.PERMANENT
    assert classify(gang, ended(R.NONZERO_EXIT, 3), port_taken=False) is Cause.PERMANENT
    assert classify(gang, ended(R.NONZERO_EXIT, 7), port_taken=False) is Cause.TRANSIENT


def test_failure_beside_a_broken_gpu_is_the_hardware_s() -> None:
    exit_ = ended(R.NONZERO_EXIT, 1)
    assert classify(made().gang, exit_, port_taken=False, gpu_problem="GPU 3: lost") is Cause.HARDWARE_FAULT


def test_spent_restarts_upon_the_library_s_own_timeout_are_followed_by_one_try_elsewhere() -> None:
    found, exit_ = made(), EXAMPLES[Cause.HANG]
    found.budgets.hang_restarts = found.gang.max_hang_restarts
    member = found.gang.members[1]

    def told(*, could_move: bool) -> object:
        return decide(found, member, exit_, Cause.HANG, NOWHERE, could_move=could_move)

    assert isinstance(told(could_move=False), Fail)
    answered = told(could_move=True)
    assert isinstance(answered, Retry)
    assert answered.failure.budget is Budget.JOB
    found.budgets.hang_moves = 1
    assert isinstance(told(could_move=True), Fail)


# --- The same again -----------------------------------------------------------------------------------------------


def test_same_failure_three_times_without_progress_is_final_where_progress_is_known() -> None:
    found = made()
    exit_ = ended(R.NONZERO_EXIT, 1, None, "Traceback (most recent call last):", "ValueError: bad batch 17")
    found.budgets.best_step = 700.0
    member = found.gang.members[1]
    found.budgets.spent.same_failure = (failure_of(found, member, exit_, Cause.USER_ERROR, NOWHERE).key, 2)
    other_number = replace(exit_, stderr_tail=("Traceback (most recent call last):", "ValueError: bad batch 18"))
    told = decide(found, member, other_number, Cause.USER_ERROR, Reached(700.0))
    assert isinstance(told, Fail)
    assert told.error.details[0] == (
        "It failed in the same way 3 times running, without progress past step 700; it is not tried again."
    )
    assert answer(found, Cause.USER_ERROR) is Restart, "another message is another failure"
    assert type(decide(found, member, exit_, Cause.USER_ERROR, Reached(701.0))) is Restart
    found.budgets.best_step = None
    assert type(decide(found, member, exit_, Cause.USER_ERROR, NOWHERE)) is Restart, (
        "nothing is known of its progress"
    )


def _last(*said: str, code: int = 1) -> Exit:
    return ended(R.NONZERO_EXIT, code, None, *said)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (_last("ValueError: bad batch 17", code=1), _last("ValueError: bad batch 18", code=3), True),
        (_last("ValueError: bad batch 17"), _last("KeyError: 'x'"), False),
        (_last("OSError: no shard 3f9a12bc at 0x7f01"), _last("OSError: no shard 44e0ff12 at 0x8001"), True),
        (_last("corrupt shard 17 on host-3", code=40), _last("corrupt shard 9 on host-12", "", code=41), True),
        (_last("step 17", code=40), _last("loss is rising", code=40), True),
        (_last("step 17", code=40), _last("loss is rising", code=41), False),
        (_last(code=40), _last(code=41), False),
        (_last(code=40), _last(code=40), True),
        (_last("ValueError: bad", code=40), _last("a line", code=40), False),
    ],
)
def test_failure_is_the_same_by_its_exception_else_by_its_code_or_last_words(
    one: Exit, other: Exit, same: bool
) -> None:
    """Ranks of one program fail in any order, and a shell or a launcher makes codes of its own."""
    found = made(no_progress_limit=2)
    found.budgets.best_step = 7.0
    cause = Cause.USER_ERROR
    found.budgets.spent.same_failure = (failure_of(found, found.gang.members[0], one, cause, NOWHERE).key, 1)
    told = decide(found, found.gang.members[1], other, cause, Reached(7.0))
    assert isinstance(told, Fail if same else Restart)


def test_restarts_of_all_workers_together_have_a_bound() -> None:
    found = made()
    limit = found.gang.max_worker_restarts
    found.budgets.spent.worker_restarts = dict.fromkeys(range(7, 7 + 2 * limit), 1)
    assert answer(found, Cause.USER_ERROR) is not Restart
    found.budgets.spent.worker_restarts.popitem()
    assert answer(found, Cause.USER_ERROR) is Restart


def test_limit_of_repetitions_can_be_set_and_switched_off() -> None:
    for limit, expected in ((2, Fail), (5, Restart), (0, Restart)):
        found = made(no_progress_limit=limit)
        found.budgets.best_step = 1.0
        exit_, member = EXAMPLES[Cause.USER_ERROR], found.gang.members[1]
        found.budgets.spent.same_failure = (failure_of(found, member, exit_, Cause.USER_ERROR, NOWHERE).key, 1)
        assert answer(found, Cause.USER_ERROR) is expected


def test_checkpoint_is_progress_only_where_no_step_is_known() -> None:
    found = made()
    assert Reached(None, checkpoint=True).progressed(found)
    found.budgets.best_step = 5.0
    assert not Reached(None, checkpoint=True).progressed(found)
    assert Reached(6.0).progressed(found)


def test_a_job_that_names_no_pause_is_relaunched_at_once_and_then_later_and_later() -> None:
    found = made(backoff_s=None)
    failure = failure_of(found, found.gang.members[1], EXAMPLES[Cause.USER_ERROR], Cause.USER_ERROR, NOWHERE)
    waits = []
    for before in range(12):
        found.budgets.spent.failures = before
        waits.append(backoff_s(found, failure))
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    assert backoff_s(found, replace(failure, progressed=True)) == 0.0, "the first after progress"
    without = made(backoff_s=None, backoff_limit_s=0.0)
    without.budgets.spent.failures = 5
    assert backoff_s(without, failure) == 0.0


def test_back_off_starts_with_the_first_failure_and_doubles() -> None:
    found = made(backoff_s=2.0, backoff_limit_s=5.0)
    failure = failure_of(found, found.gang.members[1], EXAMPLES[Cause.USER_ERROR], Cause.USER_ERROR, NOWHERE)
    waits = []
    for before in range(5):
        found.budgets.spent.failures = before
        waits.append(backoff_s(found, failure))
    assert waits == [2.0, 4.0, 5.0, 5.0, 5.0]
    assert backoff_s(found, replace(failure, progressed=True)) == 2.0, "the first after progress"
    assert backoff_s(found, replace(failure, key="")) == 0.0, "a hang, or a drain"
