"""Arguments of calls other than ``submit``: an error names the call that was made."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._api.arguments import labels_of, ranks_of, seconds_of, since_of
from holdfast.errors import InvalidInput

CALL = "The call of jobs"


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (lambda: seconds_of("timeout", "1h30m", CALL), "timeout: '1h30m' is no duration"),
        (lambda: seconds_of("timeout", -1, CALL), "timeout: -1 is no duration"),
        (lambda: since_of("2h ago", CALL), "since: '2h ago' is no duration"),
        (
            lambda: since_of(datetime.datetime.min, CALL),
            "since: datetime.datetime(1, 1, 1, 0, 0) is before or after",
        ),
        (lambda: labels_of("team=vision", CALL), "labels: 'team=vision' is no mapping"),  # type: ignore[arg-type]
        (lambda: labels_of({"team": 1}, CALL), "labels: 'team': 1 is no pair of texts"),  # type: ignore[dict-item]
        (lambda: ranks_of("0", CALL), "ranks: '0' is no number of a rank (such as 0, or [0, 1])"),  # type: ignore[arg-type]
        (lambda: ranks_of([0, -1], CALL), "ranks: -1 is no number of a rank"),
    ],
)
def test_what_is_wrong_is_said_of_the_call_and_its_argument(read: Callable[[], Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read()
    assert str(refused.value).startswith(f"The call of jobs has 1 problem:\n  {problem}")


def test_a_rank_is_any_whole_number() -> None:
    class Whole:
        def __index__(self) -> int:
            return 3

    assert ranks_of(0, CALL) == [0]
    assert ranks_of([1, Whole()], CALL) == [1, 3]  # type: ignore[list-item]
