"""Jobs that are not SPOT and start out of turn, on loan: who may, when they give way, and what users are told."""

from __future__ import annotations

import dataclasses

import pytest
from bench.fleet.reactor import Play
from tests.scenarios.queue_stories import finish, job_of, placed
from tests.scenarios.scheduling.loans.test_spot_loans import HOUR_S, QUIET, SPOT, churn, health, preempted
from tests.scenarios.scheduling.test_dry_runs import tried
from tests.scenarios.scheduling.test_fleet_bench import drawn
from tests.scenarios.scheduling.test_projected_starts import MORE, Watched, lasting, waits_for_both
from tests.scenarios.world import World

from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling import preempt
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import wait_reason

LENT = dataclasses.replace(QUIET, backfill=Backfill.LOAN)


def lent() -> World:
    """One of two hosts is busy for two hours, a job waits for both, and one that would delay it runs on the other."""
    world = waits_for_both(LENT)
    world.submit("long", lasting(30))
    world.run("long")
    return world


def why(world: World, name: str) -> str:
    now = Now(Mono(world.mono), Wall(world.wall))
    return wait_reason(world.cluster, job_of(world, name), [], world.reactor.queue_view(now))


# --- Starting out of turn -----------------------------------------------------------------------------------------


def test_job_that_would_delay_another_starts_on_loan_and_the_event_says_so() -> None:
    world = lent()
    (event,) = [event for event in world.log if isinstance(event, ev.JobPlaced) and event.job_id == "long"]
    assert (event.ahead_of, event.loan_of) == ("", "large")
    assert message_of(event, job_of(world, "long")) == (
        "placed on host-1, on loan: large waits ahead of it, and it gives way when that job or another ahead"
        " can start there"
    )
    assert "its hosts are on loan: it gives way when large" in health(world, "long")


def test_job_that_delays_none_starts_for_good() -> None:
    world = waits_for_both(LENT)
    world.submit("short", lasting(1))
    assert job_of(world, "short").places and job_of(world, "short").loan is None


def test_dry_run_knows_that_a_job_starts_on_loan() -> None:
    found = tried(waits_for_both(LENT), lasting(30))
    assert [place.host for place in found.places] == ["host-1"]


def test_words_of_one_that_waits_say_that_it_may_start_on_loan() -> None:
    world = lent()
    world.submit("more", lasting(30))
    assert why(world, "more").endswith("; it starts ahead of its turn, on loan, as soon as enough is free for it")


# --- Giving way ---------------------------------------------------------------------------------------------------


def test_loan_is_taken_back_after_an_hour_when_the_job_ahead_then_fits() -> None:
    world = lent()
    world.wait(600)
    assert not preempted(finish(world, "busy")), "it had ten minutes only"
    assert not preempted(world.wait(HOUR_S - 700))
    assert preempted(world.wait(200)) == ["long leaves to RETRY: PREEMPTED of job large"]
    assert placed(world.report("long", 0, "EMPTY")) == ["large placed g1 on host-0 host-1"]


def test_loan_is_not_taken_back_in_vain() -> None:
    world = lent()
    assert not preempted(world.wait(1.9 * HOUR_S)), "the other host is busy"


def test_overdue_job_takes_loans_back_at_once() -> None:
    """Else loans to short jobs, one after the other, could put it off for ever."""
    world = lent()
    world.wait(1.9 * HOUR_S)
    world.cancel("long")
    assert placed(world.report("long", 0, "EMPTY")) == []
    world.submit("new", lasting(30))
    world.run("new")
    assert job_of(world, "new").loan is not None
    assert not preempted(finish(world, "busy")), "large is not overdue"
    assert preempted(world.wait(0.2 * HOUR_S)) == ["new leaves to RETRY: PREEMPTED of job large"]


def test_job_that_started_in_turn_gives_way_to_nobody() -> None:
    world = World(hosts=1, policies=LENT)
    world.submit("a", lasting(30))
    world.run("a")
    assert not preempted(world.submit("urgent", lasting(1, priority=3)) + world.wait(40 * HOUR_S))


def test_one_that_gave_way_is_the_next_and_pays_nothing() -> None:
    world = lent()
    finish(world, "busy")
    world.wait(HOUR_S + 60)
    world.report("long", 0, "EMPTY")
    assert job_of(world, "long").budgets.spent.job_retries == 0
    world.run("large")
    world.submit("later", lasting(1))
    assert placed(finish(world, "large")) == ["long placed g2 on host-0", "later placed g1 on host-1"]
    assert job_of(world, "long").loan is None


def test_spot_job_ahead_of_it_takes_its_loan_back_too() -> None:
    world = World(hosts=2, policies=LENT)
    world.submit("busy", lasting(2))
    world.submit("large", lasting(5, workers=2, strategy=SPOT, priority=3))
    world.submit("long", lasting(30))
    world.run("long")
    finish(world, "busy")
    assert preempted(world.wait(HOUR_S + 60)) == ["long leaves to RETRY: PREEMPTED of job large"]


def test_loan_is_due_after_a_restart_of_the_controller() -> None:
    world = lent()
    finish(world, "busy")
    world.restart_controller(down_s=HOUR_S)
    world.join("host-0")
    world.join("host-1", places=[world.place("long", 0, "RUNNING")])
    assert preempted(world.wait(60)) == ["long leaves to RETRY: PREEMPTED of job large"]


def test_under_projected_it_waits() -> None:
    world = waits_for_both(dataclasses.replace(LENT, backfill=Backfill.PROJECTED))
    assert not placed(world.submit("long", lasting(30)))


# --- Promises -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_preemption_comes_to_an_end_when_nothing_else_happens(seed: int) -> None:
    hours = churn(seed, policies=LENT)
    assert not any(hours[len(hours) // 2 :])


def test_first_job_starts_soon_after_its_projected_start_where_estimates_are_too_long() -> None:
    """What jobs on loan lose, they do once more, and their estimates don't know of it."""
    save_every_s = 60.0
    late_s = preempt.LATE_S + 1.0 + 3 * save_every_s
    for seed in range(MORE // 2):
        sizes = (1, 1, 2, 4, 8, 16, 32)
        Watched(seed, sizes, backfill=Backfill.LOAN, late_s=late_s, save_every_s=save_every_s).run()


@pytest.mark.parametrize("seed", range(4))
def test_every_job_of_a_random_trace_runs_to_its_end(seed: int) -> None:
    found = Play(drawn(seed).shaken(seed, 0.3), 4, 8, backfill=Backfill.LOAN).run()
    assert found.preempted
