"""The charts of ``holdfast job series``: gaps stay gaps, and each figure has its own scale."""

from __future__ import annotations

import math

from holdfast.cli.jobs.series import _csv, _short, page_lines, spark
from holdfast.v1 import job_pb2

NAN = math.nan


def answer(**series: list[float]) -> job_pb2.GetSeriesResponse:
    found = job_pb2.GetSeriesResponse()
    found.since.seconds, found.step.seconds = 1_790_000_000, 60
    for name, means in series.items():
        found.series.add(figure=name, unit="%", rank=3, mean=means, least=means, most=means)
    return found


def test_bars_go_from_0_to_the_top_and_what_is_unknown_is_blank() -> None:
    assert spark([0, 50, NAN, 100], 100) == "▁▄ █"
    assert spark([0, NAN]) == "▁ "
    assert spark([NAN, NAN]) == ""


def test_values_that_are_close_are_told_apart() -> None:
    assert spark([1000.0, 1010.0, 1020.0]) == "▁▄█"


def test_figures_have_three_digits_or_all_of_a_whole_number() -> None:
    assert [_short(value) for value in (0.0, 9.876, 99.97, 999.0, 71.23e9)] == ["0", "9.88", "100", "999", "71.2G"]
    assert [_short(value) for value in (999.6e6, 999.9e9, 1.5e15)] == ["1000M", "1000G", "1500T"]


def test_a_page_names_the_time_and_the_extremes() -> None:
    lines = list(page_lines("train-1", [answer(gpu_util=[20, NAN, 80], throttle=[0, NAN, 68])]))
    assert "(3m), 1 rank" in lines[0]
    assert lines[2].split()[:5] == ["gpu_util", "20", "50", "80", "%"]
    assert lines[3].endswith("power cap, hardware thermal")
    assert "!" in lines[3] and "·" in lines[3]


def test_nothing_known_is_said_so_with_the_reason_and_the_recordings() -> None:
    found = job_pb2.GetSeriesResponse(problem="No host has sent anything.")
    found.recordings.add(name="hang-2", worker="workerpool0-0", generation=1)
    lines = list(page_lines("train-1", [found]))
    assert lines[0] == "train-1: nothing is known of this time."
    assert lines[1].strip() == "No host has sent anything."
    assert "hang-2" in lines[3]


def test_csv_leaves_out_what_is_unknown() -> None:
    rows = _csv([answer(gpu_util=[20, NAN])]).splitlines()
    assert rows == ["time,figure,unit,rank,quantile,mean,least,most", "1790000000.0,gpu_util,%,3,,20.0,20.0,20.0"]
