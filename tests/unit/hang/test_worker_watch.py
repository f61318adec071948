"""What counts as a worker's progress: its lines, until the program reports progress itself."""

from __future__ import annotations

import json

import pytest

from holdfast.hang.pipeline.features import OutputFeatures
from holdfast.hang.pipeline.log_progress import MAX_LINE, LineReader, WorkCount
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import CHARACTERS_MOST, REPORTING_MOST, WORK_LINES, WorkerWatch
from holdfast.training.rank_progress import RankProgress


def sample(at_s: float, line: str = "", reports: int = 0, rank: int = 0) -> WorkerSample:
    lines = (LogLine(0, "out", line),) if line else ()
    said = (RankProgress(rank, reports, reports, at_s),) if reports else ()
    return WorkerSample("job", "workerpool0-0", 1, at_s, lines=lines, progress=said)


def test_lines_are_progress_of_a_program_that_reports_none() -> None:
    watch = WorkerWatch("host-0", 1)
    output = watch.take(sample(10.0, "step 1")).output
    assert (output.last_progress_s, output.reported) == (10.0, False)


def test_of_a_flood_of_lines_the_first_are_read_for_the_beginning_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(WorkCount, "take", lambda self, rank, line, at_s: read.append(line))
    flood = tuple(LogLine(0, "out", f"loading {number}") for number in range(5 * WORK_LINES))
    WorkerWatch("host-0", 1).take(WorkerSample("job", "workerpool0-0", 1, 10.0, lines=flood))
    assert read == [line.text for line in flood[:WORK_LINES]]


def test_of_a_flood_the_newest_lines_of_each_stream_are_divided_from_talk_and_a_pattern_is_looked_for_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a line full of numbers costs is bounded by characters: 2,000 such lines held the agent for a second."""
    read: list[str] = []

    def is_progress(self: LineReader, line: str, rank: int, **_how: object) -> bool:
        read.append(line)
        return False

    monkeypatch.setattr(LineReader, "is_progress", is_progress)
    lines = tuple(
        LogLine(rank, stream, f"{rank} {stream} {number} " + "7 " * 400)
        for rank in range(4)
        for stream in ("out", "err")
        for number in range(250)
    )
    flood = WorkerSample("job", "workerpool0-0", 1, 10.0, lines=lines)
    WorkerWatch("host-0", 1).take(flood)
    assert sum(len(line[:MAX_LINE]) for line in read) <= CHARACTERS_MOST
    each = CHARACTERS_MOST // 8 // MAX_LINE
    assert read == [line.text for index, line in enumerate(lines) if index % 250 >= 250 - each]
    read.clear()
    WorkerWatch("host-0", 1, step_pattern=r"step (\d+)").take(flood)
    assert read == [line.text for line in lines]


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


def told(watch: WorkerWatch, *said: RankProgress, lines: tuple[str, ...] = ()) -> OutputFeatures:
    """The output's features after one more sample."""
    read = tuple(LogLine(0, "out", line) for line in lines)
    return watch.take(WorkerSample("job", "workerpool0-0", 1, 10.0, lines=read, progress=said)).output


def test_reports_without_any_step_are_progress() -> None:
    watch = WorkerWatch("host-0", 1)
    watch.take(WorkerSample("job", "workerpool0-0", 1, 10.0, progress=(RankProgress(0, 1),)))
    output = watch.take(WorkerSample("job", "workerpool0-0", 1, 20.0, progress=(RankProgress(0, 2),))).output
    assert (output.last_progress_s, output.reported, output.step) == (20.0, True, None)


def test_a_pause_alone_is_no_report() -> None:
    watch = WorkerWatch("host-0", 1)
    output = told(watch, RankProgress(0, 0, idle_reason="waits"))
    assert (output.reported, output.phase) == (False, "")


def test_a_reported_total_comes_with_the_step_and_a_higher_step_makes_it_unknown() -> None:
    watch = WorkerWatch("host-0", 1)
    assert told(watch, RankProgress(0, 1, 5, total=100)).step_total == 100.0
    assert told(watch, RankProgress(0, 2, 101, total=100)).step_total is None
    assert told(watch, RankProgress(0, 3, 102, total=200)).step_total == 200.0


def test_a_step_that_falls_makes_the_total_unknown_until_it_is_exceeded() -> None:
    watch = WorkerWatch("host-0", 1)
    told(watch, RankProgress(0, 1, 99, total=100))
    fallen = told(watch, RankProgress(0, 2, 1, total=100))
    assert (fallen.step, fallen.step_total, fallen.step_fell) == (99.0, None, True)
    assert told(watch, RankProgress(0, 3, 99, total=100)).step_total is None
    assert told(watch, RankProgress(0, 4, 100, total=100)).step_total == 100.0


def test_a_step_that_cannot_be_read_makes_the_total_unknown() -> None:
    watch = WorkerWatch("host-0", 1)
    told(watch, RankProgress(0, 1, 5, total=100))
    assert told(watch, RankProgress(0, 2, None, total=100)).step_total is None


def test_ranks_that_are_a_step_apart_do_not_fall() -> None:
    watch = WorkerWatch("host-0", 1)
    assert told(watch, RankProgress(0, 9, 9, total=50), RankProgress(1, 8, 8)).step_total == 50.0


def test_steps_fall_with_a_word_when_the_program_resumes() -> None:
    watch = WorkerWatch("host-0", 1)
    told(watch, RankProgress(0, 150, 150, total=200), RankProgress(1, 150, 150))
    back = told(watch, RankProgress(0, 150, 100, total=200, resumed=100, resumes=1), RankProgress(1, 150, 150))
    assert (back.step, back.step_total, back.resumed_step) == (100.0, 200.0, 100.0)
    on = told(watch, RankProgress(0, 151, 101, total=200, resumed=100, resumes=1), RankProgress(1, 151, 101))
    assert (on.step, on.step_total) == (101.0, 200.0)


def test_the_phase_is_that_of_the_rank_for_which_the_others_wait() -> None:
    watch = WorkerWatch("host-0", 1)
    train, evaluate = RankProgress(0, 1, 1), RankProgress(1, 1, 1, evaluates=True)
    assert told(watch).phase == ""
    assert told(watch, train).phase == "train"
    assert told(watch, train, evaluate).phase == "evaluate"
    assert told(watch, RankProgress(0, 1, 1, saves=True), evaluate).phase == "save"


def test_the_newest_save_of_any_rank_counts() -> None:
    watch = WorkerWatch("host-0", 1)
    assert told(watch, RankProgress(0, 1, 1, saved=40), RankProgress(1, 1, 1)).saved_step == 40.0


def test_the_second_group_of_a_step_pattern_is_the_total() -> None:
    watch = WorkerWatch("host-0", 1, r"iteration (\d+)/ *(\d+)")
    output = told(watch, lines=("iteration 7/ 500",))
    assert (output.step, output.step_total, output.bar_step) == (7.0, 500.0, None)
    assert told(watch, lines=("iteration 1/ 500",)).step_total is None, "of each epoch"


def test_a_step_pattern_is_found_behind_colours_too() -> None:
    watch = WorkerWatch("host-0", 1, r"step: *(\d+)")
    assert told(watch, lines=("\x1b[1mstep:\x1b[0m \x1b[32m7\x1b[0m",)).step == 7.0


@pytest.mark.parametrize(
    "line", ["  5%|▌         | 50/1000 [00:05<01:40,  9.48it/s]", "train:   5%|5    | 50/1000 [00:05<01:40]"]
)
def test_a_progress_bar_is_shown_and_is_no_step_to_judge_by(line: str) -> None:
    watch = WorkerWatch("host-0", 1)
    output = told(watch, lines=(line,))
    assert (output.bar_step, output.step_total, output.step) == (50.0, 1000.0, None)


def test_a_reported_step_goes_before_a_bar() -> None:
    watch = WorkerWatch("host-0", 1)
    output = told(watch, RankProgress(0, 1, 3), lines=("5%|5| 50/1000 [00:05<01:40]",))
    assert (output.bar_step, output.step_total, output.step) == (None, None, 3.0)


def test_counts_survive_a_restart_of_the_agent() -> None:
    before = WorkerWatch("host-0", 1)
    told(before, RankProgress(0, 9, 99, total=100, resumes=2, resumed=50))
    after = WorkerWatch("host-0", 1)
    after.restore(json.loads(json.dumps(before.journal())))
    output = told(after, RankProgress(0, 10, 3, total=100, resumes=2, resumed=50))
    assert (output.step, output.step_total) == (99.0, None), "it fell, and had not resumed anew"


def test_a_last_look_counts_what_was_said_and_leaves_the_ranks_as_they_were() -> None:
    watch = WorkerWatch("host-0", 1, step_pattern=r"step (\d+)")
    seen = watch.take(WorkerSample("job", "workerpool0-0", 1, 10.0, ranks=(RankSample(10.0, 0),)))
    words = LogLine(0, "out", "step 7")
    last = watch.take(WorkerSample("job", "workerpool0-0", 1, 10.1, lines=(words,)))
    assert (last.output.step, last.output.began_work) == (7.0, True)
    assert last.ranks == seen.ranks and watch.is_news(last)


def test_reports_of_ever_new_ranks_are_followed_up_to_a_bound() -> None:
    watch = WorkerWatch("host-0", 1)
    for tick in range(3):
        said = tuple(
            RankProgress(rank, 1, 1, float(tick))
            for rank in range(tick * REPORTING_MOST, (tick + 1) * REPORTING_MOST)
        )
        watch.take(WorkerSample("job", "workerpool0-0", 1, float(tick), progress=said))
    assert len(watch.journal()["reports"]) == len(watch.count.newest) == REPORTING_MOST
    assert watch.take(sample(9.0, reports=7, rank=3)).output.last_progress_s == 9.0, "those that are known go on"
