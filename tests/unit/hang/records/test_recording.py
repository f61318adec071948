"""Samples travel through a file and come back as they were."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.pipeline.samples import GpuSample, ProcessSample, RankSample, State, TreeSample
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.records import reader
from holdfast.hang.records.recorder import Recorder, older
from holdfast.hang.records.recording import (
    LogLine,
    RecordingError,
    SavedFiles,
    WorkerSample,
    decode,
    encode,
)
from holdfast.hang.thresholds import HangSettings
from holdfast.training.rank_progress import RankProgress

FULL = WorkerSample(
    job="job-1",
    worker="workerpool0-0",
    generation=3,
    at_s=12.5,
    ranks=(
        RankSample(
            12.5,
            0,
            ProcessSample(State.TRACED, 1.25, 9, 4096, 2, "futex_wait", traced=True),
            children=TreeSample(1.0, 2, 3, 4),
            helpers=TreeSample(0.5),
            gpu=GpuSample(10.0, 1.5, 100.0, 1.0, 7.0, fatal_xid=79, lost=True),
            paused_by_us=True,
            mount="/mnt/é",
            wait=Wait(WaitKind.OUTSIDE, "10.0.0.7:443", 2.5, "train.py:3 `fetch`"),
        ),
        RankSample(12.5, 1, exit_code=137, gpu_blind=True),
    ),
    lines=(LogLine(0, "err", 'step "1"\t☃'),),
    skipped_bytes=99,
    files=SavedFiles(True, 1.0, 2.0, 3.0, "/x.pt", 5),
    progress=(RankProgress(0, 4, 17, 11.5, "waits"),),
    settings=HangSettings(HangAction.RESTART, 60.0, step_pattern=r"step=(\d+)"),
)


@pytest.mark.parametrize("sample", [FULL, WorkerSample("j", "w", 1, 0.0)])
def test_round_trip(sample: WorkerSample) -> None:
    line = encode(sample)
    assert "\n" not in line
    assert decode(line) == sample


def test_a_recording_from_before_waits_were_seen_is_read() -> None:
    line = '{"v":1,"job":"j","worker":"w","generation":1,"at_s":2.0,"ranks":[{"at_s":2.0,"rank":0}]}'
    assert decode(line).ranks == (RankSample(2.0, 0),)


def test_idle_worker_costs_few_bytes() -> None:
    assert len(encode(WorkerSample("j", "w", 1, 0.0))) < 60


@pytest.mark.parametrize(
    "line",
    ["", "{}", "[]", '{"v":2}', '{"v":1,"job":"x"}', '{"v":1,"new":1}', '{"v":1,"ranks":[7]}', "[" * 100_000],
)
def test_what_is_no_record_is_refused(line: str) -> None:
    with pytest.raises(RecordingError):
        decode(line)


def test_a_line_that_is_no_record_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(encode(FULL) + '\n{"job":"x"}\n')
    with pytest.raises(RecordingError) as refused:
        list(reader.read(path))
    assert str(refused.value).startswith(f"{path}, line 2: no record: it names no version")


def test_recording_is_read_back_from_both_halves_in_order_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl.gz"
    recorder = Recorder(path, limit_bytes=4000, part_bytes=2000)
    samples = [WorkerSample("j", f"w-{n * 7919 % 1009}", n, float(n)) for n in range(600)]
    for sample in samples:
        recorder.write(sample)
    recorder.close()
    found = list(reader.read(path))
    assert 0 < len(found) < 600
    assert found == samples[-len(found) :]
    assert path.stat().st_size + older(path).stat().st_size <= 4000


def test_recording_that_was_cut_off_ends_at_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl.gz"
    recorder = Recorder(path, part_bytes=1)
    for n in range(3):
        recorder.write(WorkerSample("j", "w", n, 0.0))
    path.write_bytes(path.read_bytes()[:-12])
    assert [sample.generation for sample in reader.read(path)] == [0, 1]
    plain = tmp_path / "plain.jsonl"
    plain.write_text(encode(FULL) + "\n\n" + encode(FULL)[:20])
    assert list(reader.read(plain)) == [FULL]
    plain.write_bytes(gzip.compress(b"nonsense\n"))
    with pytest.raises(RecordingError):
        list(reader.read(plain))
