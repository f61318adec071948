"""From raw samples to features: what counts as moving, as work, as spin."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from holdfast.hang.pipeline import rank_baseline
from holdfast.hang.pipeline.features import GpuLook, Motion, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.rank_baseline import Baseline
from holdfast.hang.pipeline.samples import Family, GpuSample, ProcessSample, RankSample, State, TreeSample
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.thresholds import Tuning

T = Tuning()
STEP_S = 2.0


class Rank:
    """A rank driven by rates per second."""

    def __init__(self) -> None:
        self.sample = RankSample(0.0, 3, ProcessSample(main_switches=0))
        self.base: Baseline
        self.base, self.seen = rank_baseline.begin(self.sample)

    def lives(
        self,
        for_s: float,
        *,
        cpu: float = 0.0,
        switches: float = 0.0,
        storage: float = 0.0,
        faults: float = 0.0,
        state: State = State.SLEEPING,
        child_cpu: float = 0.0,
        spawns: float = 0.0,
        helper_cpu: float = 0.0,
        helper_writes: float = 0.0,
        gpu: tuple[float, float, float, float] | None = None,
        step_s: float = STEP_S,
        wait: Wait | None = None,
        ran: float = 0.0,
    ) -> RankFeatures:
        """``gpu``: utilisation, memory utilisation, watts, link bytes a second."""
        for _ in range(round(for_s / step_s)):
            old = self.sample
            assert old.process is not None
            at_s = old.at_s + step_s
            process = ProcessSample(
                state,
                old.process.cpu_s + cpu * step_s,
                (old.process.main_switches or 0) + round(switches * step_s),
                old.process.storage_bytes + round(storage * step_s),
                old.process.major_faults + round(faults * step_s),
                ran_s=(old.process.ran_s or 0.0) + ran * step_s,
            )
            children = replace(
                old.children,
                cpu_s=old.children.cpu_s + child_cpu * step_s,
                spawned=old.children.spawned + round(spawns * step_s),
            )
            written = old.helpers.written + round(helper_writes * step_s)
            helpers = TreeSample(cpu_s=old.helpers.cpu_s + helper_cpu * step_s, written=written)
            sample = RankSample(at_s, 3, process, None, children, helpers, self._gpu(at_s, step_s, gpu))
            self._take(replace(sample, wait=wait))
        return self.seen

    def _gpu(self, at_s: float, step_s: float, gpu: tuple[float, float, float, float] | None) -> GpuSample | None:
        if gpu is None:
            return None
        old = self.sample.gpu or GpuSample(at_s - step_s, 0.0, 0.0, 0.0, 0.0)
        energy, links = (old.energy_j or 0.0) + gpu[2] * step_s, (old.link_bytes or 0.0) + gpu[3] * step_s
        return GpuSample(at_s, energy, gpu[0], gpu[1], links)

    def _take(self, sample: RankSample) -> None:
        self.base, self.seen = rank_baseline.observe(self.base, sample, T)
        self.sample = sample


class Busy(TypedDict):
    cpu: float
    switches: float


TRAINS = Busy(cpu=0.9, switches=9.0)
GPU_IDLE, GPU_TRAINS, GPU_SPINS = (0.0, 0.0, 75.0, 0.0), (97.0, 45.0, 600.0, 5e9), (100.0, 1.0, 152.0, 0.0)


def test_a_training_rank_without_evidence_burns_cpu() -> None:
    assert Rank().lives(60, **TRAINS).motion is Motion.BURNING


def test_a_rank_that_stands_still_is_blocked_since_its_last_movement() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    seen = rank.lives(40)
    assert (seen.motion, seen.still_since_s) == (Motion.BLOCKED, 60.0)


def test_one_stray_wake_up_does_not_end_a_stillness_and_two_in_a_row_do() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    rank.lives(20)
    rank.lives(2, switches=9.0)
    assert rank.lives(2).still_since_s == 60.0
    assert rank.lives(4, switches=9.0).motion is Motion.STIRRING
    assert rank.lives(2).still_since_s == 88.0


def test_a_loader_that_polls_every_five_seconds_is_blocked() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    for _ in range(6):
        rank.lives(2, switches=0.5)
        seen = rank.lives(4)
    assert seen.motion is Motion.BLOCKED


def test_a_hang_never_becomes_the_new_normal() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    rank.lives(7200)
    steady = rank.base.switches_s
    assert steady is not None and 5.0 < steady < 12.0


def test_storage_faults_and_new_children_are_work_for_half_a_minute() -> None:
    for evidence in ({"storage": 1e6}, {"faults": 20.0}, {"spawns": 1.0}):
        rank = Rank()
        rank.lives(60, **TRAINS)
        rank.lives(4, **evidence)  # type: ignore[arg-type]
        assert rank.lives(28).motion is Motion.WORKING
        assert rank.lives(4).motion is Motion.BLOCKED
        assert rank.seen.still_since_s == 64.0


def test_the_bytes_of_a_log_line_are_no_work() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    assert rank.lives(40, storage=2048).motion is Motion.BLOCKED


def test_a_rank_whose_own_children_burn_is_not_blocked() -> None:
    assert Rank().lives(40, child_cpu=4.0).motion is Motion.BURNING


def test_helpers_are_told_of_and_are_no_movement() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    seen = rank.lives(40, helper_cpu=1.0)
    assert (seen.motion, seen.helpers_s) == (Motion.BLOCKED, 100.0)


def test_a_wait_for_helpers_that_compute_is_one_for_work_as_long_as_they_do() -> None:
    rank, wait = Rank(), Wait(WaitKind.CHILD, "pid 7 `python`", since_s=62.0)
    rank.lives(60, **TRAINS)
    seen = rank.lives(120, helper_cpu=0.2, wait=wait)
    assert seen.wait is not None
    assert (seen.wait.at_work, seen.wait.what) == (True, "pid 7 `python`, at work")
    seen = rank.lives(20, helper_cpu=0.05, wait=wait)
    assert seen.wait is not None
    assert seen.wait.at_work, "it may read its next file for a moment"
    assert rank.lives(20, helper_cpu=0.05, wait=wait).wait == wait
    seen = rank.lives(2, helper_writes=50, wait=wait)
    assert seen.wait is not None
    assert seen.wait.at_work, "it has handed over a result, which took it no CPU"
    other = Wait(WaitKind.PEER, "all_reduce")
    assert rank.lives(60, helper_cpu=1.0, wait=other).wait == other


def test_steps_of_some_seconds_move_a_rank_and_polls_do_not() -> None:
    for ran_s, moves in ((0.02, True), (0.001, False)):
        rank = Rank()
        rank.lives(60, **TRAINS)
        for _ in range(12):
            rank.lives(2, cpu=0.01, switches=5, ran=ran_s / 2)
            rank.lives(6)
            shown = rank.seen.motion
            rank.lives(12)
        assert (shown, rank.seen.motion) == (Motion.STIRRING if moves else Motion.BLOCKED, Motion.BLOCKED)
        assert rank.seen.still_since_s == (282.0 if moves else 62.0)
        assert rank.lives(60).still_since_s == (282.0 if moves else 62.0), "one alone is none"
        rank.lives(2, switches=5, ran=0.01)
        assert rank.lives(58).still_since_s == (282.0 if moves else 62.0)


def test_states_decide_before_rates_do() -> None:
    assert Rank().lives(4, state=State.STOPPED).motion is Motion.STOPPED
    assert Rank().lives(4, state=State.ZOMBIE).motion is Motion.ZOMBIE
    rank = Rank()
    rank._take(RankSample(2.0, 3, exit_code=0))
    assert (rank.seen.motion, rank.seen.exit_code) == (Motion.EXITED, 0)


def test_a_rank_is_stopped_since_it_was_stopped_however_long_it_has_waited_before() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    rank.lives(300)
    seen = rank.lives(20, state=State.STOPPED)
    assert (seen.motion, seen.still_since_s) == (Motion.STOPPED, 362.0)
    seen = rank.lives(20)
    assert (seen.motion, seen.still_since_s) == (Motion.BLOCKED, 362.0)


def test_a_rank_that_is_stopped_and_continued_in_turns_has_been_stopped_since_it_last_ran() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    assert rank.lives(60, ran=0.001, state=State.STOPPED).still_since_s == 120.0
    assert rank.lives(20, state=State.STOPPED).still_since_s == 120.0


def test_what_cannot_be_read_is_unseen_and_counts_from_when_it_can_again() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    for at_s in range(62, 100, 2):
        rank._take(RankSample(float(at_s), 3))
    assert rank.seen.motion is Motion.UNSEEN
    assert rank.seen.blind == {Family.PROCESS}
    rank._take(replace(rank.sample, at_s=100.0, process=ProcessSample(main_switches=540)))
    assert rank.seen.still_since_s == 98.0


def test_time_nobody_sampled_is_no_stillness() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    rank.lives(20)
    assert rank.lives(600, step_s=600.0).still_since_s == 680.0


def test_a_clock_that_steps_back_changes_nothing() -> None:
    rank = Rank()
    rank.lives(60, **TRAINS)
    base = rank.base
    rank._take(replace(rank.sample, at_s=10.0))
    assert rank.base == base


def gpu_look(**after: tuple[float, float, float, float]) -> GpuLook:
    rank = Rank()
    rank.lives(20, **TRAINS, gpu=GPU_IDLE)
    rank.lives(120, **TRAINS, gpu=GPU_TRAINS)
    seen = rank.lives(40, gpu=after["gpu"])
    assert seen.gpu is not None
    return seen.gpu.look


def test_gpu_looks_are_relative_to_the_jobs_own_level() -> None:
    assert gpu_look(gpu=GPU_TRAINS) is GpuLook.WORK
    assert gpu_look(gpu=GPU_SPINS) is GpuLook.SPIN
    assert gpu_look(gpu=GPU_IDLE) is GpuLook.IDLE
    # Low power and traffic on memory or links contradict each other.
    assert gpu_look(gpu=(100.0, 30.0, 152.0, 0.0)) is GpuLook.UNCLEAR
    assert gpu_look(gpu=(100.0, 1.0, 152.0, 4e9)) is GpuLook.UNCLEAR


def test_a_spin_before_any_work_is_not_taken_for_the_steady_level() -> None:
    rank = Rank()
    rank.lives(20, **TRAINS, gpu=GPU_IDLE)
    rank.lives(200, gpu=GPU_SPINS)
    assert rank.base.power_w is None
    assert rank.seen.gpu is not None and rank.seen.gpu.look is GpuLook.UNCLEAR


def test_a_spinning_gpu_makes_a_rank_spin_even_if_its_cpu_is_busy() -> None:
    rank = Rank()
    rank.lives(20, **TRAINS, gpu=GPU_IDLE)
    rank.lives(120, **TRAINS, gpu=GPU_TRAINS)
    seen = rank.lives(40, cpu=1.0, gpu=GPU_SPINS)
    assert (seen.motion, seen.still_since_s) == (Motion.SPINNING, 140.0)


def test_a_gpu_that_cannot_be_read_is_blind_and_a_lost_one_is_hardware() -> None:
    rank = Rank()
    rank._take(replace(rank.sample, at_s=2.0, gpu_blind=True))
    assert rank.seen.blind == {Family.GPU}
    rank._take(replace(rank.sample, at_s=4.0, gpu_blind=False, gpu=GpuSample(4.0, lost=True)))
    assert rank.seen.hardware == "its GPU is lost"
    rank._take(replace(rank.sample, at_s=6.0, gpu=GpuSample(6.0, fatal_xid=79)))
    assert rank.seen.hardware == "its GPU reported Xid 79"


def test_utilisation_alone_tells_idle_and_never_spin() -> None:
    rank = Rank()
    for at_s in range(2, 200, 2):
        rank._take(replace(rank.sample, at_s=float(at_s), gpu=GpuSample(float(at_s), util_pct=100.0)))
    busy = rank.seen.gpu
    for at_s in range(200, 210, 2):
        rank._take(replace(rank.sample, at_s=float(at_s), gpu=GpuSample(float(at_s), util_pct=0.0)))
    idle = rank.seen.gpu
    assert busy is not None and busy.look is GpuLook.UNCLEAR
    assert idle is not None and idle.look is GpuLook.IDLE


def test_a_vector_on_another_clock_and_one_with_other_numbers_are_no_news() -> None:
    rank = Rank()
    seen = rank.lives(60, **TRAINS)
    vector = WorkerFeatures("workerpool0-0", "h", 60.0, (seen,))
    moved = vector.shifted(1000.0)
    assert (moved.at_s, moved.ranks[0].still_since_s) == (1060.0, 1060.0)
    assert moved.shifted(-1000.0) == vector
    assert vector.changed_since(None)
    assert not replace(vector, ranks=(replace(seen, cpu_share=0.8),)).changed_since(vector)
    assert not replace(vector, ranks=(replace(seen, state=State.RUNNING, work="other words"),)).changed_since(
        vector
    )
    assert not vector.confirmed(70.0).changed_since(vector)
    assert replace(vector, ranks=(replace(seen, motion=Motion.BLOCKED),)).changed_since(vector)
    still = replace(seen, motion=Motion.BLOCKED)
    blocked = replace(vector, ranks=(still,))
    assert replace(vector, ranks=(replace(still, wchan="nfs_commit"),)).changed_since(blocked)


def test_a_rank_that_wakes_because_we_stop_it_has_not_moved() -> None:
    for ours in (True, False):
        rank = Rank()
        rank.lives(120, **TRAINS)
        still = rank.lives(20)
        for woken in (True, True, False):
            process = rank.sample.process
            assert process is not None
            at_s, switches = rank.sample.at_s + STEP_S, (process.main_switches or 0) + (20 if woken else 0)
            taken = replace(process, main_switches=switches)
            rank._take(replace(rank.sample, at_s=at_s, process=taken, paused_by_us=ours and woken))
        assert rank.seen.motion is Motion.BLOCKED
        assert (rank.seen.still_since_s == still.still_since_s) is ours


def test_a_rank_that_only_asks_for_a_lock_again_does_not_move() -> None:
    polls = Wait(WaitKind.PEER, "/x.db, locked by rank 0", since_s=200.0, polled=True)
    rank = Rank()
    rank.lives(200, switches=3, cpu=0.01)
    assert rank.lives(2, switches=10, cpu=0.03, wait=replace(polls, since_s=202.0)).motion is Motion.STIRRING
    seen = rank.lives(60, switches=10, cpu=0.03, wait=polls)
    assert (seen.motion, seen.still_since_s) == (Motion.BLOCKED, 202.0)
    seen = rank.lives(4, switches=3, cpu=0.01, wait=replace(polls, polled=False))
    assert (seen.motion, seen.still_since_s) == (Motion.STIRRING, 266.0), "a message to a peer is movement"


def test_a_first_reading_half_way_to_work_does_not_make_a_spin_look_like_work() -> None:
    rank = Rank()
    rank.lives(10, gpu=GPU_IDLE, step_s=5)
    rank.lives(5, gpu=(98.0, 45.0, 90.0, 1e8), step_s=5)
    rank.lives(40, **TRAINS, gpu=GPU_TRAINS, step_s=5)
    worked = rank.seen.last_work_s
    seen = rank.lives(60, gpu=GPU_SPINS, step_s=5)
    assert seen.gpu is not None
    assert (seen.gpu.look, seen.motion, seen.last_work_s) == (GpuLook.SPIN, Motion.SPINNING, worked)
