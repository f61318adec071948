"""Grouping stack dumps, and the sentence they make."""

from __future__ import annotations

from holdfast.hang.evidence.frames import Frame
from holdfast.hang.evidence.stacks import (
    RankStack,
    compared,
    group_key,
    grouped,
    mismatched,
    odd_ones,
    outside_collectives,
    sentence,
)

LIB = "/usr/lib/python3.11/"
MAIN = Frame("main", "/home/u/train.py", 88)
REDUCE = (Frame("all_reduce", LIB + "site-packages/torch/distributed_c10d.py", 2501), MAIN)
BARRIER = (Frame("barrier", LIB + "site-packages/torch/distributed_c10d.py", 4159), MAIN)
GET = (
    Frame("wait", LIB + "threading.py", 327),
    Frame("get", LIB + "queue.py", 171),
    Frame("next_batch", "/home/u/data_loader.py", 212),
    MAIN,
)


def rank(number: int, frames: tuple[Frame, ...]) -> RankStack:
    return RankStack(f"workerpool0-{number // 4}", number, frames)


def gang(**odd: tuple[Frame, ...]) -> list[RankStack]:
    return [rank(n, odd.get(f"r{n}", REDUCE)) for n in range(8)]


def test_the_minority_is_named_and_the_rest_counted() -> None:
    groups = grouped(gang(r5=GET))
    assert [stack.name for stack in odd_ones(groups)] == ["workerpool0-1 rank 5"]
    assert sentence(groups) == (
        "workerpool0-1 rank 5 is in data_loader.py:212 `queue.get`; 7 ranks wait in all_reduce"
    )


def test_a_mismatched_collective_is_called_so_and_names_both() -> None:
    assert sentence(grouped(gang(r2=BARRIER))) == (
        "mismatched collectives: workerpool0-0 rank 2 waits in barrier; 7 ranks wait in all_reduce"
    )


def test_sends_and_receives_are_no_mismatch() -> None:
    send = (Frame("send", LIB + "site-packages/torch/distributed_c10d.py", 1900), MAIN)
    recv = (Frame("recv", LIB + "site-packages/torch/distributed_c10d.py", 1950), MAIN)
    for pair in ((send, recv), (send, REDUCE), (GET, REDUCE), (REDUCE, REDUCE)):
        assert not mismatched(grouped([rank(0, pair[0]), rank(1, pair[1])]))
    assert mismatched(grouped([rank(0, BARRIER), rank(1, REDUCE)]))


def test_without_a_majority_the_ranks_in_no_meeting_are_returned() -> None:
    assert [s.rank for s in outside_collectives(grouped([rank(0, REDUCE), rank(1, GET)]))] == [1]
    halves = [rank(0, REDUCE), rank(1, REDUCE), rank(2, GET), rank(3, GET)]
    assert [s.rank for s in outside_collectives(grouped(halves))] == [2, 3]
    assert outside_collectives(grouped([rank(0, REDUCE), rank(1, BARRIER)])) == ()
    loads = (Frame("load", "/home/u/other.py", 5), MAIN)
    assert outside_collectives(grouped([rank(0, loads), rank(1, GET)])) == ()
    assert outside_collectives(grouped(gang(r5=GET))) == ()


def test_ranks_have_the_same_key_if_they_are_grouped_together() -> None:
    inside = (Frame("_wait", LIB + "site-packages/torch/distributed_c10d.py", 9), *REDUCE)
    stacks = [*gang(r2=GET, r5=BARRIER, r6=inside), rank(8, ())]
    by_key: dict[str, set[int]] = {}
    for stack in stacks:
        by_key.setdefault(group_key(stack), set()).add(stack.rank)
    assert by_key.pop("") == {8}
    assert sorted(map(sorted, by_key.values())) == sorted(
        sorted(stack.rank for stack in group.stacks) for group in grouped(stacks)
    )


def test_poll_loops_and_library_lines_do_not_tell_stacks_apart() -> None:
    polled = (Frame("get", LIB + "queue.py", 180), *GET[2:])
    assert len(grouped([rank(0, GET), rank(1, polled)])) == 1


def test_lines_of_the_users_code_do() -> None:
    later = (*GET[:2], Frame("next_batch", "/home/u/data_loader.py", 219), MAIN)
    assert len(grouped([rank(0, GET), rank(1, later)])) == 2


def test_without_a_majority_nobody_is_odd() -> None:
    assert odd_ones(grouped([rank(0, REDUCE), rank(1, BARRIER)])) == ()
    assert odd_ones(grouped([rank(0, REDUCE), rank(1, REDUCE)])) == ()


def test_failed_dumps_are_left_out() -> None:
    failed = RankStack("workerpool0-0", 0, (), "timed out")
    assert grouped([failed]) == ()
    assert sentence(()) == ""


def test_unchanged_frames_are_the_same_and_changed_ones_name_the_rank() -> None:
    assert compared(gang(), gang(), 9.0).same is True
    diagnosis = compared(gang(r3=GET), gang(r3=BARRIER), 9.0)
    assert (diagnosis.same, diagnosis.changed) == (False, frozenset({("workerpool0-0", 3)}))


def test_nothing_to_compare_is_neither_the_same_nor_changed() -> None:
    diagnosis = compared(gang(), [], 9.0)
    assert diagnosis.same is None
    assert diagnosis.words == "8 ranks wait in all_reduce"


def test_a_stack_of_library_code_alone_is_placed_at_its_inner_end() -> None:
    frames = (
        Frame("poll", LIB + "multiprocessing/popen_fork.py", 27),
        Frame("run", LIB + "asyncio/runners.py", 44),
    )
    assert sentence(grouped([rank(0, frames)])) == "workerpool0-0 rank 0 is in runners.py:44 `run`"
