"""A job's ledger on its page: the goodput, a bar, and the largest losses with who pays for them."""

from __future__ import annotations

import pytest

from holdfast.cli.jobs.goodput_page import bar, losses, short
from holdfast.cli.jobs.job_page import page
from holdfast.cli.kit.table import cell_len
from holdfast.v1 import job_pb2

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
