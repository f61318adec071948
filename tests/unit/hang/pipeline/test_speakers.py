"""Lines count as progress by who may have printed them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from holdfast.hang.pipeline.samples import ProcessSample, RankSample, State, TreeSample
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch


@dataclass
class Worker:
    """A worker of one rank or more, of which each look takes two seconds."""

    ranks: int = 1
    at_s: float = 0.0
    watch: WorkerWatch = field(default_factory=lambda: WorkerWatch("host-0", 1))
    samples: list[RankSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        process = ProcessSample(main_switches=0, ran_s=0.0, main_written=0)
        self.samples = [RankSample(0.0, rank, process) for rank in range(self.ranks)]
        self.take()

    def take(self, *lines: str) -> bool:
        """One more sample; whether it had progress."""
        before = self.watch.last_progress_s
        read = tuple(LogLine(0, "out", line) for line in lines)
        sample = WorkerSample("job", "w-0", 1, self.at_s, tuple(self.samples), read)
        return self.watch.take(sample).output.last_progress_s != before

    def look(
        self,
        *lines: str,
        cpu: float = 0.0,
        ran: float = 0.0,
        switches: int = 0,
        written: int = 0,
        child_written: int = 0,
        helper_cpu: float = 0.0,
        state: State = State.SLEEPING,
        paused: bool = False,
    ) -> bool:
        """Every rank does this for two seconds; whether there was progress."""
        self.at_s += 2.0
        for index, old in enumerate(self.samples):
            was = old.process
            assert was is not None
            process = ProcessSample(
                state,
                was.cpu_s + 2 * cpu,
                (was.main_switches or 0) + switches,
                ran_s=(was.ran_s or 0.0) + 2 * ran,
                main_written=(was.main_written or 0) + written,
            )
            self.samples[index] = replace(
                old,
                at_s=self.at_s,
                process=process,
                children=TreeSample(written=old.children.written + child_written),
                helpers=TreeSample(cpu_s=old.helpers.cpu_s + 2 * helper_cpu),
                paused_by_us=paused,
            )
        return self.take(*lines)

    def trains(self, seconds: float = 100.0, *, says: Callable[[int], str] = "step={}".format) -> None:
        """The main thread works and prints a line at each look."""
        for step in range(round(seconds / 2)):
            line = says(step)
            self.look(line, cpu=0.6, ran=0.6, switches=20, written=len(line) + 1)


Beat = Callable[[int], str]
BEATS: Sequence[Beat] = ("tick {}".format, str, "cpu_time={}.5".format, "beat={0} handled={0}".format)


def progress(worker: Worker, beat: Beat, **does: float) -> int:
    """How many lines of a heartbeat's thread pass for progress in four minutes of the same."""
    return sum(worker.look(beat(count), **does) for count in range(1000, 1120))  # type: ignore[arg-type]


@pytest.mark.parametrize("beat", BEATS)
@pytest.mark.parametrize(
    "does",
    [{}, {"switches": 1}, {"cpu": 1.0, "ran": 1.0}, {"cpu": 0.01, "ran": 0.01, "switches": 40}],
    ids=["blocked", "asks a queue again", "livelock", "short sleeps"],
)
def test_what_a_heartbeats_thread_prints_beside_a_hung_main_thread_is_no_progress(
    beat: Beat, does: dict[str, float]
) -> None:
    worker = Worker()
    worker.trains()
    assert progress(worker, beat, **does) == 0


@pytest.mark.parametrize("state", [State.STOPPED, State.DISK])
def test_nor_is_that_of_a_rank_that_can_not_run(state: State) -> None:
    worker = Worker(ranks=2)
    worker.trains()
    assert not any(worker.look(f"tick {count}", state=state) for count in range(100))


def test_a_heartbeat_of_a_hang_at_the_start_is_no_progress() -> None:
    worker = Worker()
    assert worker.look("loading", cpu=1.0, ran=1.0, written=8)
    assert progress(worker, "tick {}".format) == 0


def test_heartbeats_all_along_are_no_progress_once_the_steps_end() -> None:
    worker = Worker(ranks=2)
    worker.trains(says=lambda step: f"step={step}")
    for step in range(50, 90):
        worker.look(f"step={step}", f"tick {step}", cpu=0.6, ran=0.6, switches=20, written=8)
    assert progress(worker, "tick {}".format, cpu=1.0, ran=1.0) == 0


@pytest.mark.parametrize(
    "does",
    [
        {"cpu": 0.6, "ran": 0.6, "switches": 30},
        {"cpu": 0.6},
        {"child_written": 9},
        {"helper_cpu": 0.5},
        {"cpu": 0.01, "switches": 1},
    ],
    ids=["a logging thread", "a training thread", "a child", "helpers", "few wake-ups"],
)
def test_others_print_progress_where_the_main_thread_never_does(does: dict[str, float]) -> None:
    worker = Worker()
    worker.look("loading shard 1", cpu=1.0, ran=1.0, written=16)
    assert progress(worker, "step {}".format, **does) >= 119


@pytest.mark.parametrize("does", [{"cpu": 0.6}, {"child_written": 9}, {"helper_cpu": 0.5, "switches": 1}])
def test_threads_and_helpers_at_work_print_progress_after_the_main_threads_own(does: dict[str, float]) -> None:
    worker = Worker()
    worker.trains()
    assert progress(worker, "evaluated {}".format, **does) >= 119


def test_what_is_counted_while_something_is_loaded_makes_no_main_thread_one_that_counts() -> None:
    worker = Worker()
    worker.trains(says="loading shard {} of 200".format)
    assert progress(worker, "step {}".format, cpu=0.6, ran=0.6, switches=30) >= 119


def test_a_line_that_is_read_before_what_was_written_for_it_is_progress_one_look_later() -> None:
    worker = Worker()
    worker.trains()
    worker.look("eval", cpu=0.6, ran=0.6, switches=20)
    assert not worker.look("step=1000", cpu=0.6, ran=0.6, switches=20)
    assert worker.look(cpu=0.6, ran=0.6, switches=20, written=10)
    assert not worker.look(cpu=0.6, ran=0.6, switches=20)


def test_rare_lines_of_the_main_thread_count_however_long_it_sleeps_between() -> None:
    worker = Worker()
    worker.trains()
    for step in range(100, 110):
        assert not any(worker.look() for _ in range(30))
        assert worker.look(f"step={step}", switches=1, written=9)


def test_a_dump_that_stops_the_rank_lets_no_heartbeat_pass() -> None:
    worker = Worker()
    worker.look("loading", cpu=1.0, ran=1.0, written=8)
    worker.look("ready", written=6)
    assert not any(worker.look(f"tick {count}", switches=2, paused=True) for count in range(5))


def test_last_words_and_those_of_a_process_that_can_not_be_seen_count() -> None:
    worker = Worker()
    worker.trains()
    worker.look("tick 1")
    worker.at_s += 2.0
    worker.samples[0] = RankSample(worker.at_s, 0, exit_code=1)
    assert worker.take("Traceback: a new shape")
    worker.take()
    worker.at_s += 2.0
    assert not worker.take("tick 2")
    hidden = Worker()
    process = ProcessSample(main_switches=0)
    hidden.samples[0] = RankSample(0.0, 0, process)
    hidden.take()
    for count in range(10):
        hidden.samples[0] = RankSample(2.0 + count, 0, process)
        hidden.at_s = 2.0 + count
        assert hidden.take(f"tick {count}")


def test_a_rank_that_is_not_seen_for_a_moment_lets_no_heartbeat_pass_and_hides_no_line_of_its_own() -> None:
    worker = Worker(ranks=2)
    worker.trains()
    worker.look("tick 1000", switches=1)
    seen, process = worker.samples[0], worker.samples[0].process
    assert process is not None
    for count in range(2, 8):
        worker.at_s += 2.0
        worker.samples[0] = RankSample(worker.at_s, 0)
        assert not worker.take(f"tick {1000 + count}")
    worker.samples[0] = replace(seen, at_s=worker.at_s + 2.0)
    assert not worker.look("tick 1009")
    worker.samples[0] = RankSample(worker.at_s + 2.0, 0)
    assert not worker.take("step=2000")
    wrote = replace(process, main_written=(process.main_written or 0) + 10)
    worker.samples[0] = replace(seen, at_s=worker.at_s + 4.0, process=wrote)
    worker.at_s += 4.0
    assert worker.take()
    for _ in range(9):
        worker.at_s += 2.0
        worker.samples[0] = RankSample(worker.at_s, 0)
        worker.take()
    assert worker.take("step=2001"), "it is hidden for long"


def test_a_step_pattern_and_reports_count_whoever_prints() -> None:
    worker = Worker(watch=WorkerWatch("host-0", 1, r"tick (\d+)"))
    assert progress(worker, "tick {}".format) == 120


def test_that_the_main_thread_counts_survives_a_restart_of_the_agent() -> None:
    worker = Worker()
    worker.trains()
    after = WorkerWatch("host-0", 1)
    after.restore(json.loads(json.dumps(worker.watch.journal())))
    worker.watch = after
    worker.look("tick 1", cpu=1.0, ran=1.0)
    assert not any(worker.look(f"tick {count}", cpu=1.0, ran=1.0) for count in range(2, 60))


def test_a_loss_that_wanders_is_progress_of_a_main_thread_at_work_and_of_no_other() -> None:
    losses = [f"loss 0.{4000 + 37 * step % 101}" for step in range(80)]
    worker = Worker()
    told = [worker.look(line, cpu=0.9, ran=0.9, switches=9, written=12) for line in losses]
    assert sum(told) > 72
    waits = Worker()
    told = [waits.look(line, cpu=0.001, switches=1, written=12) for line in losses]
    assert not any(told[40:])


def test_ticks_in_each_look_hide_no_count_of_the_main_threads() -> None:
    worker = Worker()
    for step in range(100):
        worker.look(f"tick {step}", f"step={step} loss 0.5", cpu=0.6, ran=0.6, switches=20, written=18)
    assert progress(worker, "tick {}".format, cpu=1.0, ran=1.0) == 0
