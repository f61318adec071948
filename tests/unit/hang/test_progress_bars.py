"""A bar's total is shown where it is the job's, and left out where it is one epoch's."""

from __future__ import annotations

import pytest

from holdfast.hang.pipeline.step_count import BARS_MOST, ProgressBars


def bar(done: int, total: int, label: str = "") -> str:
    return f"{label}{100 * done // total}%|###   | {done}/{total} [00:05<01:40,  9.48it/s]"


def shown(*lines: str) -> tuple[float, float] | None:
    bars = ProgressBars()
    for line in lines:
        bars.take(0, line)
    return bars.shown()


def test_the_newest_state_of_a_bar_is_shown_until_after_its_end() -> None:
    assert shown(bar(1, 9), bar(5, 9)) == (5.0, 9.0)
    assert shown(bar(1, 9), bar(9, 9)) == (9.0, 9.0)


def test_the_bar_that_began_first_goes_before_an_inner_one() -> None:
    assert shown(bar(1, 10, "Run: "), bar(30, 100, "Eval: ")) == (1.0, 10.0)


def test_a_full_bar_goes_behind_one_that_moves() -> None:
    assert shown(bar(1, 90_000, "Map: "), bar(90_000, 90_000, "Map: "), bar(3, 500)) == (3.0, 500.0)


def test_a_bar_of_each_epoch_is_none_of_the_job() -> None:
    assert shown(bar(1, 100), bar(100, 100), bar(1, 100)) is None
    assert shown(bar(10, 100, "Epoch 0: ")) is None


@pytest.mark.parametrize(
    "line",
    [
        "45.2M/500M [00:10<01:40, 4.5MB/s]",
        "12it [00:05, 2.4it/s]",
        "loss 3/10 [x]",
        "date 3/10 [2026]",
        "11/10 [00:05<00:00]",
        "0/10 [00:00<?, ?it/s]",
        f"{'9' * 400}/{'9' * 400} [00:01<00:02]",
    ],
)
def test_a_line_that_tells_no_steps_of_a_whole_is_no_bar(line: str) -> None:
    assert shown(line) is None


def test_ranks_have_bars_of_their_own() -> None:
    bars = ProgressBars()
    for rank, done in ((0, 5), (1, 4), (0, 6), (1, 5)):
        bars.take(rank, bar(done, 10))
    assert bars.shown() == (6.0, 10.0)


def test_ever_new_bars_take_no_more_memory() -> None:
    bars = ProgressBars()
    for total in range(2, 500):
        bars.take(0, bar(1, total))
    assert len(bars._bars) == BARS_MOST
