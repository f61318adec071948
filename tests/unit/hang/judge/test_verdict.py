"""A whole job, judged step by step: the ladder, its brakes, what is forgiven and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.finding import Rule
from holdfast.hang.judge.snapshot import Counts
from holdfast.hang.judge.stages import Rung
from holdfast.hang.judge.state import begin, stuck
from holdfast.hang.judge.verdict import Act, Diagnose, Notify, Order, Step, Verdict, WouldAct, step
from holdfast.hang.pipeline.features import (
    GpuFeatures,
    GpuLook,
    Motion,
    OutputFeatures,
    RankFeatures,
    WorkerFeatures,
)
from holdfast.hang.pipeline.phase import Phase
from holdfast.hang.pipeline.samples import Family, State
from holdfast.hang.pipeline.waits import FUTEX, Wait, WaitKind
from holdfast.hang.thresholds import HangSettings

RESTART = HangSettings(action=HangAction.RESTART)


@dataclass
class Job:
    """One worker of two ranks, looked at every two seconds; trains and prints until told otherwise."""

    settings: HangSettings = RESTART
    at_s: float = 0.0
    still_s: float | None = None
    brake: str = ""
    counts: Counts | None = None
    output: OutputFeatures = field(default_factory=OutputFeatures)
    orders: list[Order] = field(default_factory=list)
    gpu: GpuFeatures | None = None
    wait: Wait | None = Wait(WaitKind.PEER, "all_reduce")  # noqa: RUF009

    def __post_init__(self) -> None:
        self.watch = begin(self.at_s)
        self.verdict = Verdict(Rung.HEALTHY, "")

    def trains(self, for_s: float) -> None:
        self._looks(for_s, prints=True)

    def stands_still(self, for_s: float, **changes: object) -> Verdict:
        self.still_s = self.at_s if self.still_s is None else self.still_s
        return self._looks(for_s, prints=False, **changes)

    def _looks(self, for_s: float, *, prints: bool, **changes: object) -> Verdict:
        motion = Motion.WORKING if prints else Motion.BLOCKED
        for _ in range(round(for_s / 2)):
            self.at_s += 2.0
            if prints:
                self.still_s = None
                self.output = replace(self.output, last_progress_s=self.at_s)
            since_s = self.at_s if self.still_s is None else self.still_s
            rank = RankFeatures(0, motion, since_s, state=State.SLEEPING, wchan="futex", gpu=self.gpu)
            if motion is Motion.BLOCKED:
                rank = replace(rank, wait=self.wait)
            ranks = (replace(rank, **changes), replace(rank, rank=1))  # type: ignore[arg-type]
            self.looks_at(WorkerFeatures("workerpool0-0", "host-0", self.at_s, ranks, self.output))
        return self.verdict

    def looks_at(self, worker: WorkerFeatures, diagnosis: Diagnosis | None = None) -> Step:
        taken = step(
            self.watch,
            [worker],
            self.settings,
            self.at_s,
            diagnosis=diagnosis,
            counts=self.counts,
            brake=lambda: self.brake,
        )
        self.watch, self.verdict = taken.watch, taken.verdict
        self.orders += taken.orders
        return taken

    def kinds(self) -> list[str]:
        return [type(order).__name__ for order in self.orders]


def started(**changes: object) -> Job:
    job = Job(**changes)  # type: ignore[arg-type]
    job.trains(300)
    assert job.orders == []
    return job


def test_a_hang_is_diagnosed_told_and_acted_on_in_this_order() -> None:
    job = started()
    job.stands_still(70)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]
    act = job.orders[-1]
    assert isinstance(act, Act)
    assert act.finding.families == {Family.PROCESS, Family.STACKS, Family.OUTPUT}
    assert "no rank of 2 has moved for 60 s" in job.verdict.sentence
    assert job.verdict.rung is Rung.ACTED


def test_nothing_more_is_ordered_after_the_act() -> None:
    job = started()
    job.stands_still(600)
    assert job.kinds().count("Act") == 1
    assert stuck(job.watch).rung is Rung.STUCK


def test_only_an_acted_job_can_be_stuck() -> None:
    with pytest.raises(ValueError, match="no way from HEALTHY to STUCK"):
        stuck(started().watch)


def test_to_notify_does_everything_but_the_kill_and_records_it_once() -> None:
    job = started(settings=HangSettings())
    job.stands_still(600)
    assert job.kinds() == ["Diagnose", "Notify", "WouldAct"]
    assert isinstance(job.orders[-1], WouldAct)
    assert job.verdict.suppressed == "the job asks to be notified only"


def test_off_looks_at_nothing() -> None:
    job = Job(settings=HangSettings(action=HangAction.OFF))
    job.trains(300)
    job.stands_still(4000)
    assert job.orders == []


def test_progress_after_a_notice_leads_back_and_the_pause_is_learned() -> None:
    job = started()
    job.stands_still(50)
    assert job.verdict.rung is Rung.NOTICED
    job.trains(60)
    assert (job.verdict.rung, job.watch.suspicion) == (Rung.HEALTHY, None)
    job.orders.clear()
    job.stands_still(140)
    assert job.orders == []
    job.stands_still(20)
    assert job.kinds() == ["Diagnose", "Notify"]


def test_one_silence_is_told_of_once() -> None:
    job = started(settings=HangSettings())
    job.stands_still(60)
    job.stands_still(10, motion=Motion.WORKING)
    job.still_s = job.at_s
    job.stands_still(60)
    assert job.kinds().count("Notify") == 1


def test_a_held_job_is_noticed_and_acted_on_when_the_hold_ends() -> None:
    job = started()
    job.watch = replace(job.watch, hold_until_s=job.at_s + 300)
    verdict = job.stands_still(200)
    assert verdict.rung is Rung.SUPPRESSED and verdict.suppressed.startswith("the job is held")
    assert job.kinds() == ["Diagnose", "Notify"]
    job.stands_still(110)
    assert job.kinds()[-1] == "Act"


def test_a_common_cause_withholds_and_its_end_releases() -> None:
    job = started(brake="2 jobs turned suspect within 3 min")
    assert job.stands_still(200).suppressed == "2 jobs turned suspect within 3 min"
    job.brake = ""
    job.stands_still(2)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]


def test_during_startup_ranks_that_wait_for_each_other_have_two_minutes_at_most() -> None:
    job = Job()
    job.stands_still(56)
    assert job.orders == []
    job.stands_still(50)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]


def test_during_startup_ranks_may_wait_for_what_can_not_be_seen_for_half_an_hour() -> None:
    job = Job(wait=None)
    job.stands_still(1790)
    assert job.orders == []
    job.stands_still(20)
    assert job.kinds() == ["Diagnose", "Notify"]


def test_a_pause_after_the_start_does_not_make_the_start_shorter() -> None:
    job = started()
    took_s = begin(job.at_s, job.watch).earlier_start_s
    ranks = (RankFeatures(0, Motion.BLOCKED, job.at_s),)
    for _ in range(60):
        job.at_s += 2.0
        job.looks_at(WorkerFeatures("w", "h", job.at_s, ranks, job.output, declared_idle="waits for data"))
    assert begin(job.at_s, job.watch).earlier_start_s == took_s


def test_a_new_generation_knows_how_long_the_last_start_took_and_where_it_hung() -> None:
    job = started()
    job.stands_still(70)
    again = begin(1000.0, job.watch)
    assert again == replace(begin(1000.0), earlier_start_s=again.earlier_start_s, lesson=again.lesson)
    assert again.earlier_start_s == pytest.approx(92.0)
    assert again.lesson is not None and again.lesson.times == 1
    job.watch, job.at_s, job.orders, job.wait = again, 1000.0, [], None
    job.output, job.still_s = OutputFeatures(), None
    job.stands_still(270)
    assert job.orders == []
    job.stands_still(20)
    assert job.kinds() == ["Diagnose", "Notify"]


LOCKED = {"wait": Wait(WaitKind.LOCK, place="train.py:7 `load`")}


@pytest.mark.parametrize(
    ("settings", "changes", "expected_s"),
    [
        (RESTART, {"motion": Motion.STOPPED}, [60, 120, 240]),
        (RESTART, LOCKED, [60, 120, 240]),
        (replace(RESTART, timeout_s=60.0), LOCKED, [60, 60, 60]),
        (replace(RESTART, timeout_s=60.0), {"motion": Motion.STOPPED}, [60, 60, 60]),
        (replace(RESTART, ceiling_s=100.0), LOCKED, [60, 100, 100]),
    ],
    ids=["stopped", "locked", "silent for a given time", "stopped, with a given time", "within a given ceiling"],
)
def test_the_same_hang_again_has_twice_the_time_unless_the_job_gives_one(
    settings: HangSettings, changes: dict[str, object], expected_s: list[float]
) -> None:
    job = Job(settings)
    took = []
    for _ in range(3):
        job.trains(200)
        began_s, job.orders = job.at_s, []
        while "Act" not in job.kinds() and job.at_s < began_s + 600:
            job.stands_still(2, **changes)
        took.append(job.at_s - began_s)
        job.watch = begin(job.at_s, job.watch)
        job.output = OutputFeatures()
    assert took == pytest.approx(expected_s, abs=8)


def test_of_a_gang_that_has_ended_with_success_the_rank_that_has_not_is_blamed() -> None:
    job = started()
    left = {"motion": Motion.EXITED, "exit_code": 0}
    job.wait = Wait(WaitKind.UNKNOWN, FUTEX)
    job.stands_still(20, **left)
    assert job.orders == []
    job.wait = Wait(WaitKind.LOCK, "a thread that keeps it from ending", place="threading.py:1590 `_shutdown`")
    job.stands_still(80, **left)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]
    assert {order.finding.suspects for order in job.orders if isinstance(order, Notify | Act)} == {
        ("workerpool0-0 rank 1",)
    }


def test_a_worker_not_heard_of_is_blind_and_not_hung() -> None:
    job = started()
    worker = WorkerFeatures("workerpool0-0", "h", job.at_s, (RankFeatures(0, Motion.BLOCKED, 0.0),))
    for _ in range(900):
        job.at_s += 2.0
        job.looks_at(worker)
    assert job.verdict.blind and "nothing is heard of workerpool0-0" in job.verdict.sentence
    assert job.orders == []


@pytest.mark.parametrize("state", [State.SLEEPING, State.DISK])
def test_gpus_that_cannot_be_read_may_work_unless_their_rank_hangs_in_the_driver(state: State) -> None:
    job = started()
    job.stands_still(1700, gpu=GpuFeatures(GpuLook.BLIND), state=state)
    # Told as a silence in time, and left to the ceiling.
    expected = ["Diagnose", "Notify"] if state is State.SLEEPING else ["Diagnose", "Notify", "Act"]
    assert job.kinds() == expected
    if state is State.SLEEPING:
        assert job.verdict.finding is not None
        assert (job.verdict.rung, job.verdict.finding.rule) == (Rung.NOTICED, Rule.SILENCE)


def test_time_without_a_look_is_no_silence() -> None:
    job = started()
    job.at_s += 4000.0
    job.still_s = job.at_s
    job.stands_still(20)
    assert job.orders == []


def test_a_changed_stack_is_work_and_vetoes() -> None:
    job = started()
    job.stands_still(40)
    rank = RankFeatures(0, Motion.BLOCKED, 300.0)
    worker = WorkerFeatures("workerpool0-0", "h", job.at_s, (rank, replace(rank, rank=1)), job.output)
    taken = job.looks_at(worker, Diagnosis(job.at_s, same=False, changed=frozenset({("workerpool0-0", 1)})))
    assert taken.verdict.rung is Rung.HEALTHY
    assert "its stack changes" in taken.verdict.sentence


def test_an_open_checkpoint_has_a_quarter_of_an_hour_since_its_last_byte() -> None:
    job = started()
    job.output = replace(job.output, last_checkpoint_s=job.at_s, checkpoint_open=True)
    job.stands_still(890)
    assert job.orders == []
    assert job.watch.phases == {"workerpool0-0": Phase.CHECKPOINT}
    job.stands_still(50)
    assert job.kinds()[-1] == "Act"


def test_helpers_delay_a_verdict_and_do_not_veto_it() -> None:
    job = started()
    for _ in range(28):
        job.stands_still(2, helpers_s=job.at_s)
    assert job.orders == []
    for _ in range(40):
        job.stands_still(2, helpers_s=job.at_s)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]


def test_helpers_that_are_busy_at_the_start_double_its_limit() -> None:
    job = Job(wait=None)
    for minutes, kinds in ((55, []), (10, ["Diagnose", "Notify", "Act"])):
        for _ in range(minutes * 30):
            job.stands_still(2, helpers_s=job.at_s)
        assert job.kinds() == kinds


def test_frozen_and_mismatched_counts_name_the_laggard() -> None:
    idle = GpuFeatures(GpuLook.UNCLEAR)
    job = started(gpu=idle)
    job.counts = Counts(job.at_s, True, frozenset({("workerpool0-0", 1)}))
    job.stands_still(70)
    act = job.orders[-1]
    assert isinstance(act, Act)
    assert Family.COUNTS in act.finding.families or act.finding.suspects == ("workerpool0-0 rank 1",)


def test_lone_work_is_told_after_five_minutes_and_acted_on_after_an_hour() -> None:
    job = started()
    job.still_s = job.at_s
    for _ in range(1900):
        job.stands_still(2, motion=Motion.WORKING, work="moved 9.0 MB of storage")
        if job.kinds()[-1:] == ["Act"]:
            break
    assert job.kinds() == ["Diagnose", "Notify", "Act"]
    assert job.at_s - 300 == pytest.approx(3600, abs=4)
    assert job.verdict.sentence.startswith(
        "workerpool0-0 rank 0 works (moved 9.0 MB of storage), while 1 rank wait"
    )


@pytest.mark.parametrize(
    ("motion", "words"),
    [
        (Motion.STOPPED, "is stopped by a signal"),
        (Motion.ZOMBIE, "has ended, and its exit is not recorded yet"),
    ],
)
def test_diagnose_names_the_suspects_for_native_frames(motion: Motion, words: str) -> None:
    job = started()
    job.stands_still(20, motion=motion)
    assert job.orders[0] == Diagnose(("workerpool0-0 rank 0",))
    notify = job.orders[1]
    assert isinstance(notify, Notify) and notify.finding.sentence == f"workerpool0-0 rank 0 {words}"


def test_our_own_dumps_hide_no_rank_that_is_stopped() -> None:
    job = started()
    job.stands_still(28, motion=Motion.STOPPED, paused_by_us=True)
    assert job.kinds() == ["Diagnose", "Notify"]
    job.stands_still(40, motion=Motion.STOPPED)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]


def test_our_own_dump_of_c_frames_is_no_debugger() -> None:
    job = Job()
    job.trains(300.0)
    job.stands_still(40.0)
    verdict = job.stands_still(4.0, paused_by_us=True)
    assert verdict.rung is Rung.NOTICED
    assert job.stands_still(40.0).rung is Rung.ACTED


def test_another_finding_than_the_suppressed_one_is_acted_on_in_its_own_time_only() -> None:
    """No rank moved, action suppressed; then one rank burns CPU, which may be work: acted on at the ceiling."""
    job = started()
    job.watch = replace(job.watch, hold_until_s=job.at_s + 100)
    assert job.stands_still(90).rung is Rung.SUPPRESSED
    verdict = job.stands_still(600, motion=Motion.BURNING)
    assert verdict.rung is Rung.NOTICED
    assert "Act" not in job.kinds()
    # It had stood still for 90 s and gone on: three times that, and half a minute more.
    job.stands_still(310)
    assert job.kinds().count("Act") == 1
