"""Hosts whose wall clocks are days off: what ended when, which rank failed first, and what a failure has cost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core.lifecycle.recovery_phases import Phases, phases_of
from holdfast_controller.core.model.gang import Retries
from holdfast_controller.core.model.injection import AFTERMATH_S, Fault
from holdfast_controller.core.model.recovery import of_rank
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

DAY = 86_400.0
HOSTS = ("host-0", "host-1")
OFF = pytest.mark.parametrize("ahead_s", [-400 * DAY, -DAY, -30.0, 30.0, DAY, 400 * DAY])


def cluster(ahead_s: float, *, seen: bool = True, **rules: Any) -> World:
    """Job ``a`` runs on two hosts; the clock of host-1 is off, as half an hour has shown if ``seen``."""
    world = World(hosts=2, policies=Policies(injection_projects=frozenset({"default"})))
    world.wall_clocks = {"host-1": ahead_s}
    world.wait(1800, beating=HOSTS if seen else HOSTS[:1])
    if not seen:
        world.join("host-1")
    world.submit("a", gang(2, **{"max_worker_restarts": 9, "retries": Retries(no_progress_limit=0), **rules}))
    world.run("a")
    return world


def phases(world: World) -> Phases:
    world.run("a")
    return phases_of(world.cluster.jobs["a"].recoveries[-1])


@OFF
def test_a_failure_that_is_reported_at_once_was_noticed_at_once(ahead_s: float) -> None:
    world = cluster(ahead_s)
    world.wait(600, beating=HOSTS)
    world.exit("a", 1, 1)
    found = phases(world)
    assert found.detect_s == found.lost_s == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("by_s", [-DAY, -30.0, 30.0, DAY])
def test_a_failure_just_after_our_own_clock_was_set_was_noticed_at_once(by_s: float) -> None:
    world = cluster(0.0)
    world.wait(600, beating=HOSTS)
    world.jumped += by_s
    world.wall_clocks = dict.fromkeys(HOSTS, -by_s)
    world.exit("a", 1, 1)
    assert phases(world).detect_s == pytest.approx(0, abs=0.1)


@OFF
def test_a_failure_that_is_reported_late_has_cost_that_long(ahead_s: float) -> None:
    world = cluster(ahead_s)
    world.wait(600, beating=HOSTS)
    failed_at = world.wall
    world.wait(40, beating=HOSTS)
    world.exit("a", 1, 1, end_time=failed_at)
    assert phases(world).detect_s == pytest.approx(40, abs=0.1)


@OFF
def test_the_rank_that_failed_first_is_the_cause_whatever_its_clock_shows(ahead_s: float) -> None:
    for first, second in ((0, 1), (1, 0)):
        world = cluster(ahead_s)
        world.wait(600, beating=HOSTS)
        began = world.wall
        world.wait(5, beating=HOSTS)
        world.exit("a", second, 1, end_time=began + 3.5)
        world.exit("a", first, 2, 1, end_time=began)
        recovery = world.cluster.jobs["a"].recoveries[-1]
        world.launch("a")
        assert recovery.related == of_rank(f"workerpool1-{first - 1}" if first else "workerpool0-0", first)


@OFF
def test_before_a_clock_is_known_a_failure_lies_in_the_launch_that_failed(ahead_s: float) -> None:
    world = cluster(ahead_s, seen=False)
    world.wait(10, beating=HOSTS)
    world.exit("a", 1, 1)
    assert 0 <= phases(world).detect_s < 11
    world.wait(10, beating=HOSTS)
    world.exit("a", 1, 1)
    found = phases(world)
    assert 0 <= found.detect_s < 11 and found.lost_s is not None and 0 <= found.lost_s < 11


@OFF
def test_before_a_clock_is_known_a_failure_lies_after_the_last_progress(ahead_s: float) -> None:
    world = cluster(ahead_s)
    training = Training(world)
    training.trains(3600)
    world.restart_controller()
    for worker, host in enumerate(HOSTS):
        world.join(host, places=[world.place("a", worker, "RUNNING")])
    training.trains(5)
    world.exit("a", 1, 1)
    assert 0 <= phases(world).detect_s < 6


@OFF
def test_a_fault_of_a_rehearsal_is_one_and_no_other_is(ahead_s: float) -> None:
    for after_s, injected in ((1.0, True), (AFTERMATH_S + 60, False)):
        world = cluster(ahead_s)
        world.step(st.InjectionAsked(7, "ann", "a", 1, 1, Fault.KILL, 0.0, 0))
        world.wait(after_s, beating=HOSTS)
        world.exit("a", 1, "SIGNALED:11")
        job = world.cluster.jobs["a"]
        assert job.recoveries[-1].injected is injected
        assert job.budgets.suspected == ({} if injected else {"host-1": 1})


@OFF
def test_ranks_that_leave_for_a_drain_that_is_called_off_have_left_for_it(ahead_s: float) -> None:
    world = cluster(ahead_s, warning=WarningSignal(10, 60.0), success=SuccessPolicy.PRIMARY)
    world.join("host-2")
    world.drain("host-0", 50.0)
    world.wait(5, beating=world.sessions)
    world.uncordon("host-0")
    world.exit("a", 1, 3)
    told = world.wait(50, beating=world.sessions)
    assert told[0].startswith("a leaves to RETRY: DRAINED of host host-0")


@OFF
def test_an_end_is_on_record_by_our_clock_and_a_second_account_of_it_is_kept_once(ahead_s: float) -> None:
    world = cluster(ahead_s)
    world.wait(60, beating=HOSTS)
    ended_at = world.wall
    world.wait(1, beating=HOSTS)
    world.exit("a", 1, 1, end_time=ended_at)
    for _ in range(3):
        world.wait(60, beating=HOSTS)
        world.exit("a", 1, 7, 1, end_time=ended_at)
    job = world.cluster.jobs["a"]
    assert job.exits[1][1].end_time == pytest.approx(ended_at, abs=0.1)
    assert [late.exit_code for late in job.late_exits] == [7]
