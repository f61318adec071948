"""The failure policy as a table."""

from __future__ import annotations

import pytest
from holdfast_controller.core.restart import PORT_RETRIES, Fail, Restart, decide, error_of, first_failure
from tests.unit.controller.examples import job

from holdfast_controller.core.gang import Gang, Pool, Task
from holdfast_controller.core.model import Exit, ExitReason, Job

R = ExitReason
BAD = [
    R.NONZERO_EXIT,
    R.SIGNALED,
    R.OUT_OF_MEMORY,
    R.LOST_SHIM_DIED,
    R.LOST_REBOOT,
    R.LOST_HOST,
    R.NOT_STARTED,
    R.STOPPED,
]


def made(used: int = 0, port_retries: int = 0, budget: int = 5) -> Job:
    found = job(Gang((Pool(2, Task(("x",)), processes=1),), max_worker_restarts=budget))
    found.worker_restarts = {1: used} if used else {}
    found.port_retries = port_retries
    return found


def ended(reason: ExitReason, code: int | None = None, signal: int | None = None, message: str = "") -> Exit:
    return Exit(1, 1, 1, reason, code, signal, message=message)


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize(
    ("used", "budget", "goes_on"), [(0, 5, True), (4, 5, True), (5, 5, False), (0, 0, False), (9, 5, False)]
)
def test_worker_s_own_budget_decides(reason: ExitReason, used: int, budget: int, goes_on: bool) -> None:
    found = made(used, budget=budget)
    answer = decide(found, found.gang.members[1], ended(reason, 1), port_taken=False)
    assert isinstance(answer, Restart if goes_on else Fail)
    if isinstance(answer, Restart):
        assert answer == Restart(charged=1)


@pytest.mark.parametrize("used", [0, 5])
def test_program_that_cannot_start_fails_at_once(used: int) -> None:
    found = made(used)
    answer = decide(found, found.gang.members[1], ended(R.CANNOT_START), port_taken=False)
    assert isinstance(answer, Fail)


@pytest.mark.parametrize(
    ("retries", "used", "budget", "expected"),
    [
        (0, 0, 5, Restart(None, port_retry=True)),
        (0, 5, 5, Restart(None, port_retry=True)),
        (PORT_RETRIES - 1, 0, 0, Restart(None, port_retry=True)),
        (PORT_RETRIES, 0, 5, Restart(1)),
    ],
)
def test_taken_port_is_free_within_its_own_bound(retries: int, used: int, budget: int, expected: Restart) -> None:
    found = made(used, retries, budget)
    assert decide(found, found.gang.members[1], ended(R.NONZERO_EXIT, 1), port_taken=True) == expected


def test_taken_port_past_both_bounds_fails() -> None:
    found = made(5, PORT_RETRIES)
    assert isinstance(decide(found, found.gang.members[1], ended(R.NONZERO_EXIT, 1), port_taken=True), Fail)


@pytest.mark.parametrize(
    ("exit_", "sentence", "code", "shell"),
    [
        (ended(R.NONZERO_EXIT, 7), "exited with a non-zero status of 7. Termination reason: Error.", 3, 7),
        (
            ended(R.SIGNALED, None, 11),
            "exited with a non-zero status of 139. Termination reason: signal 11.",
            3,
            139,
        ),
        (ended(R.OUT_OF_MEMORY, None, 9), "ran out of memory and exited with a non-zero status of 137.", 3, 137),
        (ended(R.CANNOT_START, message="h1: no such file"), "could not be started: h1: no such file.", 3, None),
        (ended(R.LOST_SHIM_DIED, message="shim gone"), "was lost: shim gone.", 13, None),
        (ended(R.LOST_REBOOT), "was lost: LOST_REBOOT.", 13, None),
    ],
)
def test_error_says_which_replica_and_how(exit_: Exit, sentence: str, code: int, shell: int | None) -> None:
    error = error_of(made().gang.members[1], exit_)
    assert error.message == f"The replica workerpool0-1 {sentence}"
    assert (error.code, error.exit_code) == (code, shell)


def test_error_counts_the_restarts_and_shows_the_last_lines() -> None:
    exit_ = Exit(1, 1, 1, R.NONZERO_EXIT, 1, stderr_tail=("Traceback", "ValueError"))
    assert error_of(made().gang.members[1], exit_, restarts=1).details == (
        "workerpool0-1 had been restarted in place once.",
        "Traceback",
        "ValueError",
    )


def test_first_failure_is_by_time_and_leaves_out_what_we_stopped() -> None:
    found = made()
    found.exits[1] = {
        0: Exit(1, 1, 0, R.STOPPED, signal=15, end_time=1.0),
        1: Exit(1, 1, 1, R.NONZERO_EXIT, 1, end_time=2.0),
    }
    assert first_failure(found, 1) == (found.gang.members[1], found.exits[1][1])
    found.exits[1][0] = Exit(1, 1, 0, R.SIGNALED, signal=9, end_time=1.5)
    assert first_failure(found, 1) == (found.gang.members[0], found.exits[1][0])
    assert first_failure(found, 2) is None
