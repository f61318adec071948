"""Lines count as progress by who may have printed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from holdfast.hang.pipeline.log_progress import names_its_count
from holdfast.hang.pipeline.samples import ProcessSample, RankSample, State, TreeSample
from holdfast.hang.pipeline.waits import A_THREAD, Wait, WaitKind
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.hang.worker_watch import WorkerWatch

Beat = Callable[[int], str]


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
        helper_written: int = 0,
        wait: Wait | None = None,
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
                helpers=TreeSample(
                    cpu_s=old.helpers.cpu_s + 2 * helper_cpu, written=old.helpers.written + helper_written
                ),
                wait=wait,
                paused_by_us=paused,
            )
        return self.take(*lines)

    def trains(
        self,
        seconds: float = 250.0,
        *,
        says: Callable[[int], str] = "step={}".format,
        beat: Beat | None = None,
        every: int = 1,
        written: int = 10,
    ) -> None:
        """The main thread works and prints a line at each look, and a thread another at some."""
        for step in range(round(seconds / 2)):
            beats = (beat(step),) if beat is not None and step % every == 0 else ()
            self.look(says(step), *beats, cpu=0.6, ran=0.6, switches=20, written=written)


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
    worker.trains(beat=beat)
    assert progress(worker, beat, **does) == 0


@pytest.mark.parametrize("state", [State.STOPPED, State.DISK])
def test_nor_is_that_of_a_rank_that_can_not_run(state: State) -> None:
    worker = Worker(ranks=2)
    worker.trains(beat="tick {}".format)
    assert not any(worker.look(f"tick {count + 1000}", state=state) for count in range(100))


def test_heartbeats_far_apart_are_known_as_well() -> None:
    worker = Worker()
    worker.trains(400, beat="tick {}".format, every=15)
    assert progress(worker, "tick {}".format) == 0


def test_what_is_counted_before_the_first_steps_may_be_work() -> None:
    worker = Worker()
    assert worker.look("loading", cpu=1.0, ran=1.0, written=8)
    assert progress(worker, "tick {}".format) == 120


JUDGED = "judged {} answers".format


@pytest.mark.parametrize("does", [{}, {"switches": 1}, {"cpu": 0.01, "switches": 40}])
def test_what_threads_count_in_a_phase_of_its_own_is_progress_each_time(does: dict[str, float]) -> None:
    worker = Worker()
    for phase in range(4):
        worker.trains(says=f"step={phase}{{:03}}".format, beat="tick {}".format)
        told = [worker.look(JUDGED(1000 * phase + count), **does) for count in range(60)]  # type: ignore[arg-type]
        assert all(told), f"phase {phase}"


def test_what_was_printed_all_along_counts_where_the_main_thread_waits_for_a_thread() -> None:
    worker = Worker()
    worker.trains(beat="sent {} MB".format)
    joins = Wait(WaitKind.OUTSIDE, f"s3transfer, in {A_THREAD}")
    assert all(worker.look(f"sent {1000 + count} MB", wait=joins) for count in range(60))
    assert not worker.look("sent 2000 MB", wait=Wait(WaitKind.OUTSIDE, "10.0.0.7:443"))


def test_all_lines_count_where_others_print_the_steps() -> None:
    worker = Worker()
    worker.look("epoch 1", cpu=0.6, ran=0.6, written=9)
    worker.trains(beat="tick {}".format, written=0)
    assert progress(worker, "tick {}".format, cpu=1.0, ran=1.0) == 120


def test_a_step_that_is_read_a_look_after_it_was_written_is_the_main_threads() -> None:
    worker = Worker()
    for step in range(150):
        worker.look(f"tick {2 * step}", cpu=0.6, ran=0.6, switches=20, written=10)
        worker.look(f"step={step}", f"tick {2 * step + 1}", cpu=0.6, ran=0.6, switches=20)
    worker.look()
    assert progress(worker, "tick {}".format) == 0


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("step=5", True),
        ("(worker pid=7) step 500", True),
        ("{'loss': 0.3, 'epoch': 2.0}", True),
        ("17 episodes", True),
        ("12/500 [00:10<00:40]", True),
        ("\x1b[32mBatch [3/40]", True),
        ("tick 7", False),
        ("worker alive, beat=7 handled=7", False),
        ("bit 3", False),
        ("17", False),
    ],
)
def test_a_line_names_what_it_counts(line: str, names: bool) -> None:
    assert names_its_count(line) is names


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


@pytest.mark.parametrize(
    "does", [{"cpu": 0.6}, {"child_written": 9}, {"helper_cpu": 0.5, "switches": 1}, {"helper_written": 9}]
)
def test_threads_and_helpers_at_work_print_progress_after_the_main_threads_own(does: dict[str, float]) -> None:
    worker = Worker()
    worker.trains(beat="evaluated {}".format)
    assert progress(worker, "evaluated {}".format, **does) >= 119


def test_a_line_that_is_read_before_what_was_written_for_it_is_progress_one_look_later() -> None:
    worker = Worker()
    worker.trains(beat="grad {}".format)
    worker.look("eval", cpu=0.6, ran=0.6, switches=20)
    assert not worker.look("grad 1000", cpu=0.6, ran=0.6, switches=20)
    assert worker.look(cpu=0.6, ran=0.6, switches=20, written=10)
    assert not worker.look(cpu=0.6, ran=0.6, switches=20)


def test_rare_lines_of_the_main_thread_count_however_long_it_sleeps_between() -> None:
    worker = Worker()
    worker.trains()
    for step in range(200, 210):
        assert not any(worker.look() for _ in range(30))
        assert worker.look(f"step={step}", switches=1, written=9)


def test_a_dump_that_stops_the_rank_lets_no_heartbeat_pass() -> None:
    worker = Worker()
    worker.trains(beat="tick {}".format)
    assert not any(worker.look(f"tick {count}", switches=2, paused=True) for count in range(1000, 1005))
    burns = {"cpu": 1.0, "ran": 1.0, "paused": True}
    assert not any(worker.look(f"tick {count}", **burns) for count in range(1010, 1020))  # type: ignore[arg-type]


def test_last_words_count_and_a_peers_heartbeat_after_them_does_not() -> None:
    worker = Worker(ranks=2)
    worker.trains(beat="tick {}".format)
    worker.look("tick 1000")
    worker.at_s += 2.0
    worker.samples[0] = RankSample(worker.at_s, 0, exit_code=1)
    assert worker.take("tick 1001")
    for count in range(1002, 1050):
        worker.at_s += 2.0
        worker.samples[1] = replace(worker.samples[1], at_s=worker.at_s)
        assert not worker.take(f"tick {count}")


def test_all_lines_count_where_who_prints_can_not_be_seen() -> None:
    worker = Worker()
    worker.trains(beat="tick {}".format)
    seen, process = worker.samples[0], worker.samples[0].process
    assert process is not None
    for count, hidden in enumerate([None, replace(process, main_written=None), None, process]):
        worker.at_s += 2.0
        worker.samples[0] = replace(seen, at_s=worker.at_s, process=hidden)
        assert worker.take(f"tick {1000 + count}")
    for other in (replace(seen, pid=8), replace(seen, pid=9)):
        worker.at_s += 2.0
        worker.samples[0] = replace(other, at_s=worker.at_s)
        assert worker.take(f"tick {1010 + other.pid}"), "it is another process"


def test_a_step_pattern_and_reports_count_whoever_prints() -> None:
    worker = Worker(watch=WorkerWatch("host-0", 1, r"tick (\d+)"))
    assert progress(worker, "tick {}".format) == 120


def test_a_loss_that_wanders_is_progress_of_a_main_thread_at_work_and_of_no_other() -> None:
    losses = [f"loss 0.{4000 + 37 * step % 101}" for step in range(80)]
    worker = Worker()
    told = [worker.look(line, cpu=0.9, ran=0.9, switches=9, written=12) for line in losses]
    assert sum(told) > 72
    waits = Worker()
    told = [waits.look(line, cpu=0.001, switches=1, written=12) for line in losses]
    assert not any(told[40:])
