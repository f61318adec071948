"""When output is tried again that could not be copied, and what the job's page says."""

from __future__ import annotations

from holdfast_agent.core.archiving import in_words, pause_s


def test_pauses_double_up_to_ten_minutes() -> None:
    assert [pause_s(n) for n in (1, 2, 3, 7, 8, 1000)] == [10, 20, 40, 600, 600, 600]


def test_page_says_whether_it_is_tried_again() -> None:
    assert in_words("/out: full", 60) == "/out: full; tried again"
    assert in_words("/out: full", 24 * 3600) == "/out: full; given up"
