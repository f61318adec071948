"""Ranks that keep a gang waiting: who waits for whom in words, and listeners at the ranks' meeting point."""

from __future__ import annotations

import math

import pytest
from tests.unit.hang.judge.test_verdict import Job, started

from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import RankStack, compared
from holdfast.hang.judge.finding import Rule
from holdfast.hang.judge.snapshot import Seen
from holdfast.hang.judge.verdict import Act, Notify
from holdfast.hang.judge.waiting import Blocker, Patience, blocker_words
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.waits import A_SIGNAL, FUTEX, UNSEEN, Wait, WaitKind

LEFT = {"motion": Motion.EXITED, "exit_code": 0, "wait": None}
MEETS = Wait(WaitKind.MEETING, "0.0.0.0:29500", place="net.py:7 `meet`")


def test_a_rank_that_ended_before_the_rendezvous_is_missed_as_at_any_barrier() -> None:
    job = Job(wait=MEETS)
    job.stands_still(120, **LEFT)
    assert job.kinds() == ["Diagnose", "Notify", "Act"]
    found = [order.finding for order in job.orders if isinstance(order, Notify | Act)]
    assert {(one.rule, one.suspects) for one in found} == {(Rule.STUCK_RANK, ("workerpool0-0 rank 0",))}


@pytest.mark.parametrize(
    "listens", [Wait(WaitKind.REQUEST, "0.0.0.0:8080"), MEETS], ids=["a port", "meeting point"]
)
def test_a_server_that_has_served_is_none_that_waits_for_a_peer(listens: Wait) -> None:
    """A parameter server whose clients are done, or one for clients outside, at the ranks' meeting point too."""
    job = started(wait=listens)
    job.stands_still(1700, **LEFT)
    assert "Act" not in job.kinds()


def test_a_server_at_a_port_of_its_own_is_none_even_before_any_progress() -> None:
    job = Job(wait=Wait(WaitKind.REQUEST, "0.0.0.0:8080"))
    job.stands_still(1700, **LEFT)
    assert "Act" not in job.kinds()


def test_a_rank_that_left_long_ago_is_missed_from_when_its_peers_stand_still() -> None:
    job = started()
    for _ in range(300):
        job.at_s += 2.0
        job.output = OutputFeatures(last_progress_s=job.at_s)
        left = RankFeatures(0, Motion.EXITED, 300.0, exit_code=0)
        ranks = (left, RankFeatures(1, Motion.WORKING, job.at_s))
        job.looks_at(WorkerFeatures("workerpool0-0", "host-0", job.at_s, ranks, job.output))
    job.stands_still(20, **LEFT, still_since_s=300.0)
    assert job.kinds() == ["Diagnose", "Notify"]
    notice = job.orders[1]
    assert isinstance(notice, Notify)
    assert notice.finding.since_s == pytest.approx(900, abs=4)


def test_a_rank_whose_loader_works_is_left_alone_while_it_prints_and_for_long_while_it_does_not() -> None:
    """A pool of processes that takes ten seconds for each result: its main thread hardly wakes for one."""
    job = started(wait=Wait(WaitKind.CHILD, place="train.py:9 `pool.next`", at_work=True))
    for _ in range(60):
        job.output = OutputFeatures(last_progress_s=job.at_s)
        job.stands_still(10)
    job.stands_still(280)
    assert job.orders == []
    job.stands_still(1420)
    assert job.kinds() == ["Diagnose", "Notify"]
    job.stands_still(300)
    assert job.kinds()[-1] == "Act"


def test_processes_that_prepare_data_at_the_start_have_the_time_of_a_start() -> None:
    job = Job(wait=Wait(WaitKind.CHILD, place="prepare.py:9 `pool.next`", at_work=True))
    job.stands_still(1700)
    assert job.orders == []
    job.stands_still(150)
    assert job.kinds()[-1] == "Act"


def blocker(rank: int, wait: Wait, motion: Motion = Motion.BLOCKED) -> Blocker:
    return Blocker(Seen("w-0", "h", RankFeatures(rank, motion, 0.0)), wait, Patience.SHORT)


def test_of_a_few_that_wait_for_each_other_it_is_told_who_waits_for_whom() -> None:
    ring = [blocker(n, Wait(WaitKind.PEER, f"rank {(n + 1) % 3}", place="ring.py:9 `recv`")) for n in range(3)]
    assert blocker_words(ring, 0.0) == (
        "w-0 rank 0 waits for a peer (rank 1) in ring.py:9 `recv`;"
        " w-0 rank 1 waits for a peer (rank 2) in ring.py:9 `recv`;"
        " w-0 rank 2 waits for a peer (rank 0) in ring.py:9 `recv`"
    )


def test_of_many_each_kind_of_wait_is_told_once() -> None:
    many = [blocker(n, Wait(WaitKind.PEER, f"h:{n}", place="all_reduce")) for n in range(6)]
    many += [blocker(n, Wait(WaitKind.PEER, "h:9", place="barrier")) for n in (6, 7)]
    assert blocker_words(many, 0.0) == (
        "w-0 rank 0 and 5 more wait for a peer in all_reduce;"
        " w-0 rank 6 and w-0 rank 7 wait for a peer (h:9) in barrier"
    )
    locked = [blocker(n, Wait(WaitKind.LOCK, place="a.py:1 `f`")) for n in range(4)]
    assert blocker_words(locked, 0.0) == "w-0 rank 0 and 3 more wait for locks of their own in a.py:1 `f`"
    asleep = blocker(8, Wait(WaitKind.SLEEP, until_s=600.0)), blocker(9, Wait(WaitKind.UNKNOWN))
    stopped = blocker(10, Wait(WaitKind.UNKNOWN), Motion.STOPPED)
    assert blocker_words([*asleep, stopped], 0.0) == (
        "w-0 rank 8 sleeps for 10 min more; w-0 rank 9 waits for something that can't be seen;"
        " w-0 rank 10 is stopped by a signal"
    )
    assert blocker_words([*many, *asleep, stopped], 0.0).endswith("; 2 more ranks wait for something else")


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (Wait(WaitKind.SLEEP, A_SIGNAL, until_s=math.inf), "waits for a signal"),
        (Wait(WaitKind.SLEEP, "a thread, asleep"), "waits for a thread, asleep"),
        (Wait(WaitKind.OUTSIDE, f"pid 7 `sh`, {UNSEEN}"), f"waits for pid 7 `sh`, {UNSEEN}"),
    ],
)
def test_what_a_signal_or_the_clock_may_end_elsewhere_is_acted_on_as_a_wait_for_something_outside(
    wait: Wait, words: str
) -> None:
    job = started(wait=wait)
    job.stands_still(560)
    assert job.kinds() == ["Diagnose", "Notify"]
    notice = job.orders[1]
    assert isinstance(notice, Notify)
    assert words in notice.finding.sentence
    job.stands_still(100)
    assert job.kinds()[-1] == "Act"


def test_a_lock_is_one_once_the_agent_has_looked_behind_it() -> None:
    """A dump shows the main thread's frames; the threads that it may wait for are the agent's to look at."""
    job = started(wait=Wait(WaitKind.UNKNOWN, FUTEX))
    job.stands_still(200)
    assert job.kinds() == ["Diagnose", "Notify"]
    frames = (Frame("get", "/usr/lib/python3.11/queue.py", 7), Frame("load", "/home/ada/train.py", 9))
    stacks = [RankStack("workerpool0-0", rank, frames) for rank in (0, 1)]
    ranks = tuple(RankFeatures(rank, Motion.BLOCKED, job.still_s or 0.0, wait=job.wait) for rank in (0, 1))
    worker = WorkerFeatures("workerpool0-0", "host-0", job.at_s, ranks, job.output)
    job.looks_at(worker, compared(stacks, stacks, job.at_s))
    job.stands_still(20)
    assert "Act" not in job.kinds()
    job.wait = Wait(WaitKind.LOCK, place="train.py:9 `queue.get`")
    job.stands_still(20)
    assert job.kinds()[-1] == "Act"


def test_a_sleep_without_an_end_is_acted_on_at_once() -> None:
    job = started(wait=Wait(WaitKind.SLEEP, until_s=math.inf))
    job.stands_still(100)
    assert job.kinds()[-1] == "Act"


def test_of_a_child_that_sleeps_it_is_told_who_sleeps() -> None:
    child = blocker(0, Wait(WaitKind.SLEEP, "pid 7 `sleep`", until_s=math.inf))
    assert blocker_words([child], 0.0) == "w-0 rank 0 waits for pid 7 `sleep`, which sleeps without an end in sight"
