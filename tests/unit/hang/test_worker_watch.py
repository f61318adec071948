"""What counts as a worker's progress: its lines, until the program reports progress itself."""

from __future__ import annotations

import json

from holdfast.hang.records.recording import LogLine, RankProgress, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch


def sample(at_s: float, line: str = "", reports: int = 0, rank: int = 0) -> WorkerSample:
    lines = (LogLine(0, "out", line),) if line else ()
    said = (RankProgress(rank, reports, reports, at_s),) if reports else ()
    return WorkerSample("job", "workerpool0-0", 1, at_s, lines=lines, progress=said)


def test_lines_are_progress_of_a_program_that_reports_none() -> None:
    watch = WorkerWatch("host-0", 1)
    output = watch.take(sample(10.0, "step 1")).output
    assert (output.last_progress_s, output.reported) == (10.0, False)


def test_once_a_program_reports_progress_its_lines_are_none() -> None:
    watch = WorkerWatch("host-0", 1)
    watch.take(sample(10.0, "step 1"))
    watch.take(sample(20.0, "step 2", reports=1))
    output = watch.take(sample(30.0, "a line of a new shape", reports=1)).output
    assert (output.last_progress_s, output.reported, output.step) == (20.0, True, 1.0)


def test_reports_of_any_rank_of_the_worker_count() -> None:
    watch = WorkerWatch("host-0", 1)
    watch.take(sample(10.0, reports=3, rank=0))
    assert watch.take(sample(20.0, reports=1, rank=1)).output.last_progress_s == 20.0


def test_that_a_program_reports_survives_a_restart_of_the_agent() -> None:
    before = WorkerWatch("host-0", 1)
    before.take(sample(10.0, reports=5))
    after = WorkerWatch("host-0", 1)
    after.restore(json.loads(json.dumps(before.journal())))
    output = after.take(sample(20.0, "step 900", reports=5)).output
    assert (output.last_progress_s, output.reported) == (10.0, True)


def test_a_record_of_before_reports_were_kept_is_taken_up() -> None:
    record = WorkerWatch("host-0", 1).journal()
    del record["reports"]
    watch = WorkerWatch("host-0", 1)
    watch.restore(record)
    assert not watch.reported
