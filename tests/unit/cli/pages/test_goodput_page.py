"""A job's ledger on its page: the goodput, a bar, and the largest losses with who pays for them."""

from __future__ import annotations

import pytest

from holdfast.cli.kit.table import cell_len, render
from holdfast.cli.pages.goodput_page import adding_up, bar, losses, short, sums_table
from holdfast.cli.pages.goodput_page import page as ledger_page
from holdfast.cli.pages.job_page import page
from holdfast.v1 import cluster_pb2, job_pb2

NOW = 1_795_233_600.0
HOUR = 3_600_000


def ledger(*lines: tuple[str, str, str, float], level: str = "A") -> job_pb2.GetGoodputResponse:
    found = job_pb2.GetGoodputResponse(level=level, complete=True, interruptions=3)
    for category, cause, payer, hours in lines:
        found.lines.add(category=category, cause=cause, payer=payer, ms=round(hours * HOUR))
    return found


FOUND = ledger(
    ("train", "WORK", "job", 80.0),
    ("train_unsaved", "WORK", "job", 2.0),
    ("warm_up", "FIRST_START", "job", 4.0),
    ("lost", "HANG", "program", 5.0),
    ("detect", "HANG", "program", 1.0),
    ("warm_up", "HANG", "program", 0.5),
    ("lost", "NONZERO_EXIT", "program", 3.0),
    ("stop", "DRAINED", "operator", 0.25),
    ("stop", "LOST_HOST", "hardware", 2.0),
    ("wind_down", "FINISHED", "job", 2.25),
)


def test_losses_are_summed_by_cause_with_the_start_that_each_made_necessary() -> None:
    assert [(cause, payer, ms / HOUR) for cause, payer, ms in losses(FOUND)] == [
        ("HANG", "program", 6.5),
        ("NONZERO_EXIT", "program", 3.0),
        ("LOST_HOST", "hardware", 2.0),
        ("DRAINED", "operator", 0.25),
    ]


def test_a_job_s_page_has_the_goodput_the_bar_and_the_three_largest_losses() -> None:
    lines = short(FOUND, width=78, colour=False).splitlines()
    assert lines == [
        "goodput 82.0 % of 100.0 GPU hours (level A)",
        "████████████████████████████████████████████████▓░░░×××××××·",
        "█ trained 80.0 %  ▓ not saved yet 2.0 %  ░ starting 4.0 %  × lost 11.8 %",
        "· ending, idle 2.2 %",
        "LOST TO       PAYER     GPU HOURS  SHARE",
        "HANG          program       6.500  6.5 %",
        "NONZERO_EXIT  program       3.000  3.0 %",
        "LOST_HOST     hardware      2.000  2.0 %",
    ]
    job = job_pb2.CustomJob(id="j1", display_name="train", generation=1)
    shown = list(page(job, NOW, goodput=FOUND, wide=False, width=80, colour=False))
    assert shown[shown.index("Goodput") + 1 :] == [f"  {line}" for line in lines]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_bar_with_every_group_stays_within_the_terminal(width: int) -> None:
    found = ledger(
        *[(category, "X", "job", 1.0) for category in ("train", "train_unsaved", "save", "stop", "pause", "ran")],
        ("launch", "FIRST_START", "job", 1.0),
    )
    assert max(map(cell_len, bar(found, width))) <= width


@pytest.mark.parametrize(("level", "words"), [("A", "not saved yet"), ("B", "trained, no save known")])
def test_work_is_called_not_saved_only_where_saves_are_known(level: str, words: str) -> None:
    found = ledger(("train_unsaved", "WORK", "job", 1.0), level=level)
    assert bar(found)[1] == f"▓ {words} 100.0 %"


def test_what_is_not_known_is_called_so() -> None:
    (head, drawn, legend) = short(
        ledger(("ran", "WORK", "job", 1.0), level="D"), width=80, colour=False
    ).splitlines()
    assert (head, set(drawn), legend) == (
        "goodput unknown of 1.000 GPU hours (level D)",
        {"?"},
        "? unknown 100.0 %",
    )


def test_a_job_without_time_has_no_goodput_on_its_page() -> None:
    job = job_pb2.CustomJob(id="j1", display_name="train")
    for goodput in (None, job_pb2.GetGoodputResponse(level="D")):
        assert "Goodput" not in list(page(job, NOW, goodput=goodput, wide=False, width=80, colour=False))


def test_a_ledger_adds_up_as_it_is_shown() -> None:
    thirds = ledger(*((category, "WORK", "job", 1 / 3) for category in ("train", "save", "evaluate")))
    thirds.since.FromSeconds(1)
    lines = [line.split() for line in ledger_page("j1", thirds, 80)][-4:]
    assert [line[-3:-1] for line in lines] == [
        ["0.3334", "33.4"],
        ["0.3333", "33.3"],
        ["0.3333", "33.3"],
        ["1.0000", "100.0"],
    ]
    assert lines[-1][0] == "total"


def test_shown_figures_are_each_rounded_up_or_down_and_none_is_negative() -> None:
    shown = adding_up([0.004, 0.004, 0.004, 0.0, 5.0], 2)
    assert [f"{figure:.2f}" for figure in shown] == ["0.01", "0.00", "0.00", "0.00", "5.00"]
    assert all(figure >= 0 for figure in shown)


def test_no_figure_is_shown_as_more_than_a_larger_one() -> None:
    figures = [276.45, 0.18, 0.1, 16.37, 0.02, 0.255]
    shown = adding_up(figures, 0)
    assert sum(shown) == round(sum(figures))
    by_size = [shown[at] for at in sorted(range(len(figures)), key=lambda at: figures[at])]
    assert by_size == sorted(by_size)


def sums(*rows: tuple[str, str, str, str, float], ranks: bool = False) -> list[cluster_pb2.GoodputRow]:
    return [
        cluster_pb2.GoodputRow(
            name=name, project=project, category=category, payer=payer, ms=round(hours * HOUR), ranks=ranks
        )
        for name, project, category, payer, hours in rows
    ]


MONTH = [
    *sums(
        ("ann", "vision", "train", "job", 900.0),
        ("ann", "vision", "train_unsaved", "job", 10.0),
        ("ann", "vision", "warm_up", "program", 40.0),
        ("ann", "vision", "warm_up", "job", 50.0),
        ("bert-the-second-of-that-name", "language-models", "ran", "job", 9000.0),
    ),
    *sums(("ann", "vision", "train", "job", 3.0), ranks=True),
]


def test_sums_have_a_total_of_each_unit_and_fit_a_terminal_of_80_columns() -> None:
    text = render(*sums_table(MONTH, "owner", 80), width=80, colour=False)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert [line.split()[2:] for line in lines[1:3]] == [
        ["GPUs", "9,000.0", "-", "0.0", "0.0", "0.0", "9,000.0"],
        ["GPUs", "1,000.0", "91.0", "%", "910.0", "40.0", "50.0", "0.0"],
    ]
    assert lines[3].split() == ["total", "GPUs", "10,000.0", "9.1", "%", "910.0", "40.0", "50.0", "9,000.0"]
    assert lines[4].split()[2:5] == ["ranks", "3.0", "100.0"]
    assert len(lines) == 5, "one row is its own total"
    wide = render(*sums_table(MONTH, "owner", None), width=None, colour=False)
    assert "NOT SAVED YET" in wide and "STARTING" in wide and "bert-the-second-of-that-name" in wide
