"""Blame by torch's flight recorder: what each rank has asked of its peers, and what that says of a hang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.hang.evidence.flight_recorder import Blame, FlightRecord, Operation, ProcessGroup, blamed


def group(
    last: int,
    *,
    open_at: int | None = None,
    name: str = "0",
    op: str = "all_reduce",
    inputs: str = "Float[4]",
    state: str = "scheduled",
    age_s: float = 95.0,
    ranks: tuple[tuple[int, int], ...] = ((0, 3),),
    place: str = "",
) -> ProcessGroup:
    """A group whose newest collective is ``op``; the ones before were broadcasts, a second apart."""
    before = [Operation(n, "broadcast", age_s=age_s + last - n, inputs="Float[1]") for n in range(last - 3, last)]
    newest = Operation(last, op, state if open_at else "completed", age_s, inputs, inputs, place)
    return ProcessGroup(name, "", ranks, last, open_at, (*before, newest))


def record(*groups: ProcessGroup, quiet_s: float = 95.0) -> FlightRecord:
    return FlightRecord("2.4", groups, quiet_s=quiet_s)


def waits(last: int = 451, **more: Any) -> FlightRecord:
    return record(group(last, open_at=last, **more))


def of(*records: FlightRecord) -> dict[int, FlightRecord]:
    return dict(enumerate(records))


def test_the_rank_that_has_not_joined_what_its_peers_wait_in_is_named() -> None:
    behind = record(group(450, op="broadcast"))
    found = blamed(of(waits(), waits(), waits(), behind))
    assert found == Blame(
        frozenset({3}),
        "rank 3 has not joined all_reduce #451 of process group 0, which ranks 0-2 are in for 95 s;"
        " its last was broadcast #450",
        95.0,
    )


def test_a_rank_that_never_joined_the_group_is_behind_too() -> None:
    found = blamed(of(waits(1), waits(1), waits(1), record()))
    assert found is not None and found.ranks == {3}
    assert found.sentence.endswith("it has joined none there")


def test_peers_that_have_asked_for_more_wait_in_the_oldest() -> None:
    """NCCL takes orders in advance."""
    ahead = replace(waits().groups[0], last=470)
    found = blamed(of(record(ahead), waits(), waits(), record(group(450))))
    assert found is not None and found.ranks == {3} and "#451" in found.sentence


def test_a_moment_is_no_hang() -> None:
    """Dumps of a healthy job differ by what it does between them."""
    assert blamed(of(waits(age_s=2.0), waits(age_s=2.0), record(group(450)))) is None
    assert blamed(of(waits(), waits(), record(group(450), quiet_s=1.0))) is None
    assert blamed(of(record(group(450)), record(group(470)))) is None
    assert blamed({}) is None


def test_without_a_record_a_rank_is_not_blamed() -> None:
    assert blamed(of(waits(), waits(), waits(), FlightRecord(problem="nothing was written"))) is None


@pytest.mark.parametrize(
    ("odd", "sentence"),
    [
        (
            {"op": "broadcast", "place": "train.py:80 `step`"},
            "rank 2 runs broadcast #451 of process group 0 at train.py:80 `step`, where ranks 0, 1, 3 run all_reduce",
        ),
        (
            {"inputs": "Float[8]"},
            "rank 2 runs all_reduce of Float[8] #451 of process group 0,"
            " where ranks 0, 1, 3 run all_reduce of Float[4]",
        ),
        (
            {"inputs": "Half[4]"},
            "rank 2 runs all_reduce of Half[4] #451 of process group 0,"
            " where ranks 0, 1, 3 run all_reduce of Float[4]",
        ),
    ],
)
def test_a_rank_that_runs_another_operation_or_another_size_is_named(odd: dict[str, Any], sentence: str) -> None:
    found = blamed(of(waits(), waits(), waits(**odd), waits()))
    assert found is not None and (set(found.ranks), found.sentence) == ({2}, sentence)


def test_a_root_that_has_finished_the_wrong_operation_and_gone_on_is_named_too() -> None:
    gone = record(group(451, op="broadcast"))
    found = blamed(of(waits(), waits(), gone, waits()))
    assert found is not None and found.ranks == {2}
    assert "rank 2 runs broadcast #451" in found.sentence


@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "reduce_scatter", "gather", "scatter"])
def test_sizes_that_may_differ_between_ranks_are_no_mismatch(op: str) -> None:
    assert blamed(of(waits(op=op), waits(op=op, inputs="Float[9]"), waits(op=op), waits(op=op))) is None


def test_halves_that_run_different_operations_wait_for_each_other() -> None:
    found = blamed(of(*[waits()] * 2, *[waits(op="broadcast")] * 2))
    assert found is not None and found.ranks == {0, 1, 2, 3}
    assert found.sentence.startswith(
        "ranks 0-3 wait for each other: rank 0 is in all_reduce #451 of process group 0;"
    )


def test_a_rank_that_waits_for_a_third_in_another_group_is_a_victim() -> None:
    """0 and 1 wait for 2 and 3 in the group of all; 2 waits for 3 in its own; only 3 waits for none."""
    first = waits()
    second = record(group(450), group(7, open_at=7, name="5", ranks=((2, 3),)))
    third = record(group(450), group(6, name="5", ranks=((2, 3),)))
    found = blamed(of(first, first, second, third))
    assert found is not None and found.ranks == {3}
    assert "all_reduce #7 of process group 5, which rank 2 is in" in found.sentence


def test_ranks_that_take_two_groups_in_different_order_wait_for_each_other() -> None:
    one = record(group(4, open_at=4, name="1", ranks=((0, 1),)), group(8, name="2", ranks=((0, 1),)))
    two = record(group(3, name="1", ranks=((0, 1),)), group(9, open_at=9, name="2", ranks=((0, 1),)))
    found = blamed(of(one, two, record(), record()))
    assert found is not None and found.ranks == {0, 1}
    assert found.sentence == (
        "ranks 0, 1 wait for each other: rank 0 is in all_reduce #4 of process group 1;"
        " rank 1 is in all_reduce #9 of process group 2"
    )


def test_groups_of_one_name_and_different_ranks_are_different_groups() -> None:
    left, right = ((0, 1),), ((2, 3),)
    records = [*[record(group(9, name="dp", ranks=left))] * 2, *[record(group(4, name="dp", ranks=right))] * 2]
    assert blamed(of(*records)) is None


def test_members_that_are_not_told_are_all_ranks_for_the_default_group() -> None:
    """gloo tells none."""
    waiting = record(replace(group(4, open_at=4, ranks=()), description="default_pg"))
    found = blamed({0: waiting, 1: waiting, 2: record(group(3, ranks=()))}, world=range(3))
    assert found is not None and found.ranks == {2}


def test_a_gpu_that_has_not_started_what_the_others_have_is_named() -> None:
    started = waits(state="started")
    found = blamed(of(started, started, started, waits()))
    assert found is not None and (set(found.ranks), found.sentence) == (
        {3},
        "rank 3 has not started all_reduce #451 of process group 0 on the GPU, which ranks 0-2 have",
    )
    assert blamed(of(started, *[waits()] * 3)) is None


def test_a_receiver_waits_for_its_sender() -> None:
    def with_sends(*names: str) -> FlightRecord:
        sends = tuple(Operation(5, name, "scheduled", 60.0) for name in names)
        return record(ProcessGroup("1", "", ((4, 6),), sends=sends))

    found = blamed({4: with_sends(), 5: with_sends("recv 1<-0"), 6: with_sends("recv 2<-1")})
    assert found is not None and (set(found.ranks), found.sentence) == (
        {4},
        "rank 4 is not at the other end of recv 1<-0 #5 of process group 1, which rank 5 waits in for 60 s",
    )
    assert blamed({4: with_sends("send 0->1"), 5: with_sends("recv 1<-0"), 6: record()}) is None
    assert blamed({4: with_sends("send ²->1"), 5: with_sends("recv 1<-" + "9" * 5000), 6: record()}) is None


def test_words_of_one_rank() -> None:
    assert waits().words == "in all_reduce #451 of process group 0"
    assert record(group(450)).words == "last all_reduce #450 of process group 0, completed"
    assert (FlightRecord().words, FlightRecord(problem="too big").words) == ("empty", "too big")
