"""When output is tried again that could not be copied, and what the job's page says."""

from __future__ import annotations

from holdfast_agent.core.launch.archiving import LONGEST_PAUSE_S, MOST_TRIES, in_words, is_due, pause_s


def test_pauses_double_up_to_ten_minutes() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 7, 8, 1000)] == [10, 20, 40, 600, 600, 600]


def test_page_says_whether_it_is_tried_again() -> None:
    assert in_words("/out: full", 1) == "/out: full; tried again"
    assert in_words("/out: full", MOST_TRIES) == "/out: full; given up"


def test_a_copy_is_tried_for_a_day() -> None:
    assert 24 * 3600 <= sum(map(pause_s, range(1, MOST_TRIES))) < 25 * 3600


def test_a_wall_clock_that_is_set_back_delays_no_try_for_longer_than_a_pause() -> None:
    at = 1_000_000.0
    assert is_due(at, at) and is_due(at, at + 1)
    assert not is_due(at, at - 1)
    assert not is_due(at, at - LONGEST_PAUSE_S)
    assert is_due(at, at - 86_400)
