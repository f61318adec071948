"""Waits double after each failure, within their bound, and start anew after a success."""

from __future__ import annotations

import random

from holdfast._base.backoff import Backoff, wait_s


def test_a_wait_doubles_from_the_first_failure_on_and_stops_at_its_bound() -> None:
    assert [wait_s(failures, 1.0, 10.0) for failures in range(1, 7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert wait_s(0, 1.0, 10.0) == 1.0
    assert wait_s(10**9, 1.0, 60.0) == 60.0


def test_a_bound_below_the_first_wait_holds() -> None:
    assert wait_s(1, 5.0, 2.0) == 2.0


def test_each_wait_is_drawn_from_the_upper_half_and_success_starts_anew() -> None:
    backoff = Backoff(1.0, 8.0, random.Random(3))
    for whole in (1.0, 2.0, 4.0, 8.0, 8.0):
        assert whole / 2 <= backoff.failed() <= whole
    backoff.reset()
    assert 0.5 <= backoff.failed() <= 1.0
