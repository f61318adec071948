"""Leases, the mass brake, timers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Inventory, Liveness, Presence
from holdfast_controller.core.model.hosts.lease import LeasePolicy, brake, liveness, next_change
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step.commands import HostConnected, JobSubmission, TimePassed
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.step.timers import ClusterTimer, HostTimer, JobTimer, TimerKey, Timers

POLICY = LeasePolicy()
A, B, C = (JobTimer.HANG, "1"), (HostTimer.LEASE, "1"), (ClusterTimer.RECONCILE, "")
EVERY_TIMER: list[TimerKey] = [
    *((kind, "job") for kind in JobTimer),
    *((kind, "host") for kind in HostTimer),
    *((kind, "") for kind in ClusterTimer),
]


@pytest.mark.parametrize(
    ("silent", "verdict", "due"),
    [
        (0, Liveness.READY, 15),
        (14.9, Liveness.READY, 15),
        (15, Liveness.SUSPECT, 66),
        (65.9, Liveness.SUSPECT, 66),
        (66, Liveness.LOST, None),
        (1e9, Liveness.LOST, None),
    ],
)
def test_silence_is_judged_and_the_next_change_is_known(
    silent: float, verdict: Liveness, due: float | None
) -> None:
    presence = Presence(last_seen=Mono(1000.0))
    assert liveness(POLICY, presence, Mono(1000.0 + silent)) is verdict
    assert next_change(POLICY, presence, Mono(1000.0 + silent)) == (None if due is None else 1000.0 + due)


@pytest.mark.parametrize(
    ("silent", "heard", "holds"),
    [
        (0, 1, False),
        (1, 0, False),
        (1, 1, False),
        (2, 0, True),
        (2, 1, True),
        (1, 99, False),
        (55, 45, False),
        (56, 44, True),
    ],
)
def test_brake_holds_when_more_than_the_share_is_silent(silent: int, heard: int, holds: bool) -> None:
    presences = [Presence(last_seen=Mono(0.0))] * silent + [Presence(last_seen=Mono(100.0))] * heard
    assert brake(POLICY, presences, Mono(100.0)) is holds


def test_timers_come_due_in_order_and_once() -> None:
    timers = Timers()
    timers.set(A, Mono(5.0))
    timers.set(B, Mono(3.0))
    assert timers.next_due() == 3.0
    assert timers.pop_due(Mono(2.9)) == []
    assert timers.pop_due(Mono(5.0)) == [B, A]
    assert timers.pop_due(Mono(100.0)) == []
    assert timers.next_due() is None


def test_setting_a_timer_again_replaces_it_and_clearing_disarms_it() -> None:
    timers = Timers()
    timers.set(A, Mono(5.0))
    timers.set(A, Mono(9.0))
    timers.set(B, Mono(6.0))
    timers.clear(B)
    timers.clear(C)
    assert timers.pop_due(Mono(8.0)) == []
    assert timers.pop_due(Mono(9.0)) == [A]


def test_a_timer_moved_earlier_is_due_earlier_and_only_then() -> None:
    timers = Timers()
    timers.set(A, Mono(9.0))
    timers.set(A, Mono(5.0))
    assert timers.pop_due(Mono(5.0)) == [A]
    assert timers.pop_due(Mono(9.0)) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 20))),  # set, or clear
            st.integers(0, 25),  # what is due then
        )
    )
)
def test_timers_agree_with_a_plain_dictionary(moves: list[tuple[str, int | None] | int]) -> None:
    timers = Timers()
    model: dict[str, float] = {}
    for move in moves:
        if isinstance(move, int):
            assert timers.earliest <= min(model.values(), default=math.inf)
            assert timers.next_due() == min(model.values(), default=None)
            due = timers.pop_due(Mono(move))
            assert due == sorted(due, key=lambda key: (model[key[1]], key))
            assert {name for _, name in due} == {name for name, at in model.items() if at <= move}
            model = {name: at for name, at in model.items() if at > move}
        elif move[1] is None:
            timers.clear((JobTimer.RETRY, move[0]))
            model.pop(move[0], None)
        else:
            timers.set((JobTimer.RETRY, move[0]), Mono(float(move[1])))
            model[move[0]] = float(move[1])
    assert timers.next_due() == min(model.values(), default=None)


def test_a_deadline_that_is_put_off_for_ever_takes_no_room() -> None:
    timers = Timers()
    for second in range(1000):
        timers.set(B, Mono(second + 15.0))
        assert timers.next_due() == second + 15.0
    timers.clear(B)
    assert timers.next_due() is None
    assert timers.earliest == math.inf


@pytest.mark.parametrize("key", EVERY_TIMER, ids=lambda key: f"{type(key[0]).__name__}.{key[0].name}")
def test_every_kind_of_timer_has_a_handler(key: TimerKey) -> None:
    reactor = Reactor(Cluster(epoch=1), Policies(secret_key=b"k"))
    reactor.step(
        HostConnected("host", 1, "10.0.0.1", "boot", "1", Inventory(8, 8 << 30)), Now(Mono(100.0), Wall(1e6))
    )
    gang = Gang((Pool(1, Task(("x",))),))
    reactor.step(JobSubmission(1, "ann", "", "job", JobPlan("job", gang, "{}")), Now(Mono(100.0), Wall(1e6)))
    reactor.timers.set(key, Mono(101.0))
    reactor.step(TimePassed(), Now(Mono(101.0), Wall(1e6 + 1)))
    assert reactor.timers.due.get(key) != 101.0
