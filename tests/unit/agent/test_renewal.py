"""When an agent looks at its certificate again."""

from __future__ import annotations

from holdfast_agent.shell.main.renewal import LOOK_AGAIN_S, RETRY_LEAST_S, RETRY_MOST_S, pause_s


def test_it_sleeps_until_it_is_due() -> None:
    assert pause_s(600, 1000) == 600
    assert pause_s(86_400, 100_000) == LOOK_AGAIN_S


def test_after_a_failure_it_tries_more_often_as_time_runs_out() -> None:
    waits = [pause_s(-1, left) for left in (28_800, 300, 60, 2, -5)]
    assert waits == [RETRY_MOST_S, 30, 6, RETRY_LEAST_S, RETRY_LEAST_S]
