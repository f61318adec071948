"""CSV on stdout, and beside it, for a person, whatever makes it less than what was asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.jobs import goodput, series
from holdfast.v1 import cluster_pb2, job_pb2

SUMS = cluster_pb2.SumGoodputResponse(truncated=True)
SUMS.rows.add(name="vision", model="H200", category="train", payer="user", ms=3_600_000)
SUMS.complete_since.FromSeconds(1_790_000_000)
SERIES = job_pb2.GetSeriesResponse(problem="Nothing newer is kept at present: the disk is full.")


class Cluster:
    """Its answers; only what these commands ask for."""

    async def sum_goodput(self, *asked: object) -> cluster_pb2.SumGoodputResponse:
        return SUMS


def answered(work: Callable[[Any], Awaitable[Any]]) -> Any:
    coroutine: Any = work(Cluster())
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


@pytest.mark.parametrize("by", ["project", "host"])
def test_sums_that_are_cut_off_say_so_beside_the_csv(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    monkeypatch.setattr(goodput, "with_client", answered)
    result = CliRunner().invoke(goodput.goodput, ["--by", by, "-o", "csv"])
    assert result.exit_code == 0
    title, row = result.stdout.splitlines()
    assert title.startswith(f"{by},gpu_model,unit,category") and row.startswith("vision,H200,GPU,train,user,1.0")
    said = result.stderr.splitlines()
    assert said[0].startswith("Time before 2026-09-21") and said[1:] == ["There is more: ask for fewer days."]


@pytest.mark.parametrize("output", ["table", "csv"])
def test_a_gap_in_series_is_explained_in_the_page_and_beside_the_csv(
    monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr(series, "with_client", lambda work: ("train-1", [SERIES]))
    result = CliRunner().invoke(series.series, ["train-1", "-o", output])
    assert result.exit_code == 0
    there, elsewhere = (result.stderr, result.stdout) if output == "csv" else (result.stdout, result.stderr)
    assert SERIES.problem in there and SERIES.problem not in elsewhere
