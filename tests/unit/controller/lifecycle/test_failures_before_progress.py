"""Programs that fail before they have done anything: which are tried again, and which are not."""

from __future__ import annotations

import pytest
from tests.unit.controller.lifecycle.test_failure_policy import NOWHERE, ended, made

from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.fold.attempt import note_failure
from holdfast_controller.core.lifecycle.failure_policy import Cause, Fail, Reached, Restart, decide, failure_of


def last(*said: str, code: int = 1) -> Exit:
    """An end with these last lines on stderr."""
    return ended(ExitReason.NONZERO_EXIT, code, None, *said)


EARLY = Reached(early=True)
FIRST_LINES = ("Traceback (most recent call last):",)


@pytest.mark.parametrize(
    ("exit_", "broken"),
    [
        (last(*FIRST_LINES, "ModuleNotFoundError: No module named 'trainer'"), True),
        (last(*FIRST_LINES, "ImportError: cannot import name 'x'"), True),
        (last(*FIRST_LINES, "SyntaxError: invalid syntax"), True),
        (last("run.sh: line 3: torchrum: command not found", code=127), True),
        (last(code=126), True),
        (last(*FIRST_LINES, "ValueError: no shard"), False),
        (last(code=1), False),
    ],
)
def test_a_program_that_cannot_work_as_it_is_written_fails_at_once(exit_: Exit, broken: bool) -> None:
    found = made()
    member = found.gang.members[1]
    told = decide(found, member, exit_, Cause.USER_ERROR, EARLY)
    assert isinstance(told, Fail if broken else Restart)
    if isinstance(told, Fail):
        assert told.error.details[0] == (
            "It failed before any progress, in a way that a new try would not change; it is not tried again."
        )
    assert isinstance(decide(found, member, exit_, Cause.USER_ERROR, NOWHERE), Restart), "it has worked before"
    found.budgets.best_step = 3.0
    assert isinstance(decide(found, member, exit_, Cause.USER_ERROR, EARLY), Restart), "it has worked before"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (last("ValueError: no shard 17"), last("ValueError: no shard 4", code=3), True),
        (last("no such file: /data/x", code=2), last("no such file: /data/x", code=2), True),
        (last("no such file: /data/x", code=2), last("no such file: /data/x", code=3), False),
        (last("ValueError: no shard"), last("KeyError: 'lr'"), False),
        (last("downloading", code=2), last("no such file", code=2), False),
        (last(code=2), last(code=2), False),
        (
            last(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Process 4711 has 512 MiB"
            ),
            last("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB. Process 99 has 1.5 GiB"),
            True,
        ),
        (
            last("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/tmpk3_2x9f8/x'"),
            last("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/tmpq9w8zzz1/x'"),
            True,
        ),
        (last("ValueError: no shard in tmpfiles"), last("ValueError: no shard in tmpdirs"), False),
    ],
)
def test_the_same_words_twice_before_any_progress_are_final(one: Exit, other: Exit, same: bool) -> None:
    found = made()
    failure = failure_of(found, found.gang.members[0], one, Cause.USER_ERROR, EARLY)
    note_failure(found, failure)
    told = decide(found, found.gang.members[1], other, Cause.USER_ERROR, EARLY)
    assert isinstance(told, Fail if same else Restart)
    if isinstance(told, Fail):
        assert told.error.details[0].startswith(
            "It failed in the same way twice, each time before any progress was seen"
        )
    assert isinstance(decide(found, found.gang.members[1], other, Cause.USER_ERROR, NOWHERE), Restart)


def test_early_failures_are_tried_again_where_the_job_asks_for_that() -> None:
    exit_ = last("ValueError: no shard")
    for retries in ({"no_progress_limit": 0}, {"unconditional": True}):
        found = made(**retries)
        note_failure(found, failure_of(found, found.gang.members[0], exit_, Cause.USER_ERROR, EARLY))
        assert isinstance(decide(found, found.gang.members[1], exit_, Cause.USER_ERROR, EARLY), Restart), retries


@pytest.mark.parametrize(
    "said",
    [
        "OSError: [Errno 98] Address already in use",
        "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://data.lab",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "OSError: [Errno 116] Stale file handle: '/data/x'",
    ],
)
def test_what_may_heal_by_itself_is_tried_again_as_often_as_any_error(said: str) -> None:
    found = made()
    note_failure(found, failure_of(found, found.gang.members[0], last(said), Cause.USER_ERROR, EARLY))
    assert isinstance(decide(found, found.gang.members[0], last(said), Cause.USER_ERROR, EARLY), Restart)


def test_a_step_of_0_is_no_progress_before_the_same_error() -> None:
    found, exit_ = made(), last("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    at_0 = Reached(step=0.0, early=True)
    note_failure(found, failure_of(found, found.gang.members[0], exit_, Cause.USER_ERROR, at_0))
    assert isinstance(decide(found, found.gang.members[0], exit_, Cause.USER_ERROR, at_0), Fail)
