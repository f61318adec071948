"""The last quarter of an hour of samples: there without being asked for, bounded, and over a restart of the agent."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast._session.reports import WorkerId
from holdfast.hang.pipeline.samples import ProcessSample, RankSample, State
from holdfast.hang.records.reader import unpacked
from holdfast.hang.records.recording import LogLine, SavedFiles, WorkerSample, decode
from holdfast_agent.shell.sampling.history import BASE_BYTES, RANK_BYTES, SampleHistory

KEY = WorkerId("job-1", "workerpool0-0")
EVERY_S = 2.0


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    (tmp_path / KEY.job / KEY.worker).mkdir(parents=True)
    return tmp_path


def sampled(history: SampleHistory, begin_s: float, end_s: float, **what: Any) -> None:
    for tick in range(round((end_s - begin_s) / EVERY_S)):
        at_s = begin_s + tick * EVERY_S
        rank = RankSample(at_s, 0, ProcessSample(State.SLEEPING, at_s / 3, tick * 7, tick * 4096))
        history.on_sample(replace(WorkerSample(KEY.job, KEY.worker, 1, at_s, (rank,)), **what))


def kept(history: SampleHistory) -> list[WorkerSample]:
    return [decode(line.decode()) for lines in unpacked(history.read(KEY)) for line in lines.splitlines()]


def test_the_last_quarter_of_an_hour_is_there_at_any_time(workers: Path) -> None:
    history = SampleHistory(workers)
    assert history.read(KEY) == b""
    for end_s in (10.0, 890.0, 910.0, 2000.0, 5400.0):
        begin_s = kept(history)[-1].at_s + EVERY_S if kept(history) else 0.0
        sampled(history, begin_s, end_s)
        times = [sample.at_s for sample in kept(history)]
        assert times[0] <= max(0.0, end_s - 900.0)
        assert times[0] >= end_s - 1810.0
        assert times[-1] == end_s - EVERY_S
        assert times == [times[0] + n * EVERY_S for n in range(len(times))]


def test_a_restarted_agent_goes_on_where_it_was(workers: Path) -> None:
    before = SampleHistory(workers)
    sampled(before, 0.0, 300.0)
    before.close()
    after = SampleHistory(workers)
    sampled(after, 310.0, 320.0)
    assert [sample.at_s for sample in kept(after)] == [*(n * EVERY_S for n in range(150)), *range(310, 320, 2)]


def test_an_agent_that_is_killed_loses_a_minute(workers: Path) -> None:
    sampled(SampleHistory(workers), 0.0, 1200.0)
    assert kept(SampleHistory(workers))[-1].at_s >= 1140.0


def test_floods_of_output_are_cut_and_the_files_stay_within_bounds(workers: Path) -> None:
    history, draw = SampleHistory(workers), random.Random(1)
    for tick in range(900):
        lines = tuple(LogLine(0, "out", draw.randbytes(100).hex()) for _ in range(100))
        sampled(history, tick * EVERY_S, (tick + 1) * EVERY_S, lines=lines)
        assert sum(path.stat().st_size for path in (workers / KEY.job / KEY.worker).iterdir()) <= 2 * (
            BASE_BYTES + RANK_BYTES
        )
        if tick == 450:
            assert kept(history)[-1].at_s - kept(history)[0].at_s > 300.0
    last = kept(history)[-1]
    assert last.at_s == 1798.0
    assert 0 < len(last.lines) < 20 and last.skipped_bytes == 200 * (100 - len(last.lines))
    assert last.at_s - kept(history)[0].at_s > 300.0


def test_where_nothing_can_be_written_samples_are_missing_and_nothing_else(workers: Path) -> None:
    history = SampleHistory(workers)
    sampled(history, 0.0, 50.0)
    (workers / KEY.job / KEY.worker).rmdir()
    sampled(history, 50.0, 5000.0)
    assert history.read(KEY) == b""
    (workers / KEY.job / KEY.worker).mkdir()
    sampled(history, 5000.0, 5100.0)
    assert kept(history)[-1].at_s == 5098.0


def test_half_of_a_surrogate_pair_in_a_sample_is_no_error(workers: Path) -> None:
    history = SampleHistory(workers)
    sampled(history, 0.0, 100.0, files=SavedFiles(path="/mod\udce8le/ckpt.pt"))
    assert kept(history)[0].files.path == "/mod?le/ckpt.pt"
