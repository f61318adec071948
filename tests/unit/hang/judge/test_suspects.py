"""Who is named as guilty: the odd one of many, what tells two apart, and nobody where nothing does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import Diagnosis, RankStack, grouped
from holdfast.hang.judge.finding import Finding, Grade, Rule
from holdfast.hang.judge.snapshot import Seen, View
from holdfast.hang.judge.state import begin
from holdfast.hang.judge.suspects import find_suspects, oddity
from holdfast.hang.judge.waiting import Gang
from holdfast.hang.judge.watch import Suspicion
from holdfast.hang.pipeline.features import GpuFeatures, GpuLook, Motion, RankFeatures
from holdfast.hang.pipeline.samples import State
from holdfast.hang.thresholds import Tuning

TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MAIN = Frame("train", "/home/u/train.py", 88)
REDUCE = (Frame("all_reduce", TORCH, 2501), MAIN)
BARRIER = (Frame("barrier", TORCH, 4159), MAIN)
RECV = (Frame("recv", TORCH, 1950), MAIN)
QUEUE = (Frame("get", "/usr/lib/python3.11/queue.py", 171), MAIN)
LOCK = (Frame("save", "/home/u/model.py", 12), MAIN)
WAITS = RankFeatures(0, Motion.BLOCKED, 0.0, state=State.SLEEPING, wchan="futex_wait_queue")


def look(*ranks: RankFeatures, stacks: tuple[tuple[Frame, ...], ...] = (), **more: object) -> View:
    """Ranks of one worker each, that have stood still for long."""
    seen = tuple(Seen(f"workerpool0-{n}", f"h{n}", replace(rank, rank=n)) for n, rank in enumerate(ranks))
    dumps = [RankStack(f"workerpool0-{n}", n, frames) for n, frames in enumerate(stacks)]
    diagnosis = Diagnosis(90.0, grouped(dumps)) if dumps else None
    suspicion = Suspicion(80.0, Finding(Rule.GPUS_IDLE, Grade.NOTICE, 80.0, 90.0, frozenset(), ""), diagnosis)
    watch = replace(begin(0.0), started_s=0.0, suspicion=suspicion)
    return View(100.0, Tuning(), seen, watch, 1800.0, **more)  # type: ignore[arg-type]


def named(view: View) -> list[int]:
    return [int(name.rpartition(" ")[2]) for name in find_suspects(view, Gang(view))]


@pytest.mark.parametrize("elsewhere", [QUEUE, LOCK])
@pytest.mark.parametrize("meeting", [REDUCE, BARRIER, RECV])
def test_of_two_ranks_the_one_in_no_collective_is_named(
    meeting: tuple[Frame, ...], elsewhere: tuple[Frame, ...]
) -> None:
    assert named(look(WAITS, WAITS, stacks=(meeting, elsewhere))) == [1]
    assert named(look(WAITS, WAITS, stacks=(elsewhere, meeting))) == [0]


def test_two_ranks_in_different_collectives_are_both_named() -> None:
    assert named(look(WAITS, WAITS, stacks=(REDUCE, BARRIER))) == [0, 1]


@pytest.mark.parametrize("pair", [(REDUCE, REDUCE), (QUEUE, LOCK), (REDUCE, RECV)])
def test_two_ranks_that_nothing_tells_apart_are_not_named(pair: tuple[tuple[Frame, ...], ...]) -> None:
    assert named(look(WAITS, WAITS, stacks=pair)) == []


def test_four_ranks_split_in_halves_of_two_collectives_are_not_named() -> None:
    assert named(look(*[WAITS] * 4, stacks=(REDUCE, REDUCE, BARRIER, BARRIER))) == []
    assert named(look(*[WAITS] * 4, stacks=(REDUCE, REDUCE, QUEUE, LOCK))) == [2, 3]


def test_rank_that_sleeps_by_the_clock_is_named_beside_one_that_waits_to_be_woken() -> None:
    sleeps = replace(WAITS, wchan="hrtimer_nanosleep")
    assert named(look(WAITS, sleeps)) == [1]
    assert named(look(sleeps, sleeps)) == []
    assert named(look(replace(WAITS, wchan="anon_pipe_read"), sleeps)) == [1]
    assert named(look(replace(WAITS, wchan="folio_wait_bit"), sleeps)) == []
    assert named(look(replace(WAITS, wchan=""), sleeps)) == []
    assert named(look(WAITS, replace(sleeps, motion=Motion.STIRRING))) == []


def test_neither_a_debugger_nor_our_own_dumps_hide_broken_hardware() -> None:
    for rank in (replace(WAITS, traced=True), replace(WAITS, paused_by_us=True)):
        view = look(replace(rank, hardware="its GPU reported Xid 79"), WAITS)
        assert oddity(view.ranks[0], view, Gang(view)) == "can't go on: its GPU reported Xid 79"


def test_stopped_rank_is_named_whatever_the_stacks_say() -> None:
    assert named(look(replace(WAITS, motion=Motion.STOPPED), WAITS, stacks=(REDUCE, QUEUE))) == [0]


def test_idle_gpu_beside_one_that_spins_is_named() -> None:
    idle = replace(WAITS, gpu=GpuFeatures(GpuLook.IDLE))
    spins = replace(WAITS, motion=Motion.SPINNING, gpu=GpuFeatures(GpuLook.SPIN))
    assert named(look(spins, idle)) == [1]
    assert named(look(idle, idle)) == []
    assert named(look(spins, replace(idle, gpu=GpuFeatures(GpuLook.UNCLEAR)))) == []


def test_worker_that_lags_behind_in_steps_is_named_where_all_tell_theirs() -> None:
    steps = {"workerpool0-0": 700.0, "workerpool0-1": 699.0}
    assert named(look(WAITS, WAITS, steps=steps)) == [1]
    assert named(look(WAITS, WAITS, steps={"workerpool0-0": 700.0})) == []
    assert named(look(WAITS, WAITS, steps=dict.fromkeys(steps, 700.0))) == []
