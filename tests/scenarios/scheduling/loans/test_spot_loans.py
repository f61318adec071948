"""SPOT jobs that start out of turn: on what, who takes it back and when, and what users are told."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.scenarios.queue_stories import cpu, finish, job_of, placed, why
from tests.scenarios.scheduling.test_dry_runs import tried
from tests.scenarios.world import World, gang, inventory

from holdfast._base.job_file.choices import SuccessPolicy
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang, HostSelector, Pool, Strategy, Task
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling import preempt
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.views.job_summary import summary_of

SPOT = Strategy.SPOT
HOUR_S = 3600.0
FOREVER_S = 1e12
QUIET = Policies(LeasePolicy(FOREVER_S, FOREVER_S, FOREVER_S, FOREVER_S), b"k")
"""Hosts that are never missed, so that they needn't beat through hours."""


def preempted(told: list[str]) -> list[str]:
    return [words for words in told if "PREEMPTED" in words]


def health(world: World, name: str) -> str:
    queue_view = QueueView(world.cluster, list(world.cluster.hosts.values()), {})
    return summary_of(
        world.cluster, job_of(world, name), queue_view, Now(Mono(world.mono), Wall(world.wall))
    ).health


def waits_for_two() -> World:
    """Two hosts of four GPUs: one has a STANDARD job, and another STANDARD job waits for both."""
    world = World(hosts=2)
    world.submit("busy", gang(1))
    world.submit("large", gang(2))
    return world


def large_spot_waits() -> World:
    """A SPOT job waits for both hosts; another one runs on the host that is free."""
    world = World(hosts=2, policies=QUIET)
    world.submit("busy", gang(1, timeout_s=FOREVER_S))
    world.submit("large", gang(2, strategy=SPOT, max_wait_s=0.0))
    world.submit("s", gang(1, strategy=SPOT, max_wait_s=0.0))
    world.run("s")
    return world


# --- Starting out of turn -----------------------------------------------------------------------------------------


def test_spot_job_starts_on_what_is_kept_for_a_standard_one_and_the_event_says_so() -> None:
    world = waits_for_two()
    assert not placed(world.submit("standard", gang(1)))
    assert placed(world.submit("s", gang(1, strategy=SPOT))) == ["s placed g1 on host-1"]
    (event,) = [event for event in world.log if isinstance(event, ev.JobPlaced) and event.job_id == "s"]
    assert event.loan_of == "large"
    assert message_of(event, job_of(world, "s")) == (
        "placed on host-1, on loan: large waits ahead of it, and it gives way when that job or another ahead"
        " can start there"
    )


def test_spot_job_that_starts_in_turn_has_no_loan() -> None:
    world = World(hosts=2)
    world.submit("s", gang(1, strategy=SPOT))
    world.submit("large", gang(2))
    assert job_of(world, "s").loan is None


def test_spot_gang_and_one_without_gpus_start_out_of_turn_too() -> None:
    world = World(hosts=3)
    world.submit("busy", gang(1))
    world.submit("large", gang(3))
    assert placed(world.submit("s", gang(2, gpus=2, strategy=SPOT))) == ["s placed g1 on host-1 host-1"]
    assert placed(world.submit("c", cpu(cpus=16, strategy=SPOT))) == ["c placed g1 on host-2"]


def test_spot_job_that_does_not_wait_starts_out_of_turn() -> None:
    world = waits_for_two()
    assert placed(world.submit("s", gang(1, strategy=SPOT, waits=False))) == ["s placed g1 on host-1"]


def test_small_spot_job_does_not_wait_for_a_large_one() -> None:
    world = World(hosts=2)
    world.submit("busy", gang(1))
    world.submit("large", gang(2, strategy=SPOT))
    assert placed(world.submit("s", gang(1, strategy=SPOT))) == ["s placed g1 on host-1"]


def test_dry_run_knows_that_a_spot_job_starts_out_of_turn() -> None:
    found = tried(waits_for_two(), gang(1, strategy=SPOT))
    assert [place.host for place in found.places] == ["host-1"]


# --- Taking back --------------------------------------------------------------------------------------------------


def test_standard_job_takes_its_hosts_back_at_once_when_it_fits_and_not_before() -> None:
    world = waits_for_two()
    told = world.submit("s", gang(1, strategy=SPOT))
    assert not preempted(told), "in vain: the other host is busy"
    told = world.cancel("busy")
    assert preempted(told) == ["s leaves to RETRY: PREEMPTED of job large"]
    assert not placed(world.report("busy", 0, "EMPTY"))
    assert placed(world.report("s", 0, "EMPTY")) == ["large placed g1 on host-0 host-1"]


def test_hosts_on_which_room_is_being_made_are_lent_to_no_other() -> None:
    world = waits_for_two()
    world.submit("s", gang(1, strategy=SPOT))
    finish(world, "busy")
    assert not placed(world.submit("s2", gang(1, gpus=1, strategy=SPOT))), "host-0 is free, and large gets it"
    assert placed(world.report("s", 0, "EMPTY")) == ["large placed g1 on host-0 host-1"]


def test_standard_job_that_is_not_first_takes_back_what_those_ahead_cannot_use() -> None:
    """Else a SPOT job behind it would delay it."""
    world = World(hosts=1)
    world.join("small", inventory(2, name="small"))
    on_small = HostSelector(hosts=frozenset({"small"}))
    world.submit("busy", gang(1))
    world.submit("first", gang(1))
    world.submit("s", gang(1, gpus=2, strategy=SPOT))
    assert preempted(world.submit("b", gang(1, gpus=2, selector=on_small))) == [
        "s leaves to RETRY: PREEMPTED of job b"
    ]


def test_spot_job_takes_back_a_loan_behind_it_after_an_hour() -> None:
    world = large_spot_waits()
    world.wait(600)
    assert not preempted(finish(world, "busy")), "s had ten minutes only"
    assert not preempted(world.wait(HOUR_S - 700))
    assert preempted(world.wait(200)) == ["s leaves to RETRY: PREEMPTED of job large"]
    assert placed(world.report("s", 0, "EMPTY")) == ["large placed g1 on host-0 host-1"]


@pytest.mark.parametrize("down_s", [0.0, HOUR_S])
def test_loan_is_due_after_a_restart_of_the_controller(down_s: float) -> None:
    world = large_spot_waits()
    finish(world, "busy")
    world.restart_controller(down_s=down_s)
    world.join("host-0")
    world.join("host-1", places=[world.place("s", 0, "RUNNING")])
    assert preempted(world.wait(max(HOUR_S - down_s, 0.0) + 60)) == ["s leaves to RETRY: PREEMPTED of job large"]


def test_spot_job_that_started_in_turn_gives_way_to_no_spot_job() -> None:
    world = World(hosts=1, policies=QUIET)
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    told = world.submit("urgent", gang(1, strategy=SPOT, priority=3))
    assert not preempted(told + world.wait(3 * HOUR_S))


@pytest.mark.parametrize("restarted", [False, True])
def test_one_that_gave_way_starts_out_of_turn_again_after_as_long_as_it_lost(restarted: bool) -> None:
    world = World(hosts=3, policies=QUIET)
    world.submit("busy", gang(1))
    world.submit("huge", gang(3))
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    world.wait(100)
    on_its_host = HostSelector(hosts=frozenset({"host-1"}))
    assert preempted(world.submit("b", gang(1, priority=3, selector=on_its_host)))
    assert placed(world.report("s", 0, "EMPTY")) == ["b placed g1 on host-1"], "and s not on host-2"
    assert "; it gave way and may start ahead of its turn again from " in why(world, "s")
    assert not placed(world.wait(95))
    if restarted:
        world.restart_controller(down_s=0.1)
        for name in ("host-0", "host-1", "host-2"):
            world.join(name, places=[world.place("b", 0, "PREPARING")] if name == "host-1" else [])
    assert placed(world.wait(10)) == ["s placed g2 on host-2"]


def test_packing_leaves_hosts_with_spot_jobs_alone_where_standard_ones_are_fuller() -> None:
    world = World(hosts=2)
    world.submit("s", gang(1, gpus=2, strategy=SPOT))
    world.submit("a", gang(1, gpus=2, selector=HostSelector(hosts=frozenset({"host-1"}))))
    assert placed(world.submit("b", gang(1, gpus=1))) == ["b placed g1 on host-1"]


# --- Who is stopped -----------------------------------------------------------------------------------------------


def test_lower_priority_is_stopped_first_though_it_is_older() -> None:
    world = World(hosts=2, policies=QUIET)
    world.submit("low", gang(1, strategy=SPOT, priority=1))
    world.run("low")
    world.wait(10)
    world.submit("high", gang(1, strategy=SPOT, priority=3))
    world.run("high")
    assert preempted(world.submit("b", gang(1, priority=3))) == ["low leaves to RETRY: PREEMPTED of job b"]


def test_of_equals_the_one_that_loses_least_is_stopped() -> None:
    """Four GPUs for ten seconds against one for thirty."""
    world = World(hosts=2, policies=QUIET)
    world.submit("one", gang(1, gpus=1, strategy=SPOT))
    world.run("one")
    world.wait(20)
    world.submit("four", gang(1, strategy=SPOT))
    world.run("four")
    world.wait(10)
    assert preempted(world.submit("b", gang(1, priority=3))) == ["one leaves to RETRY: PREEMPTED of job b"]


def test_one_alone_goes_rather_than_two_but_never_one_of_a_higher_priority() -> None:
    world = World(hosts=2)
    world.submit("big", gang(1, strategy=SPOT, priority=2))
    for name in ("s1", "s2"):
        world.submit(name, gang(1, gpus=2, strategy=SPOT))
    told = preempted(world.submit("b", gang(1, priority=3)))
    assert told == ["s2 leaves to RETRY: PREEMPTED of job b", "s1 leaves to RETRY: PREEMPTED of job b"]


@pytest.mark.parametrize("seed", range(150))
def test_victims_are_enough_none_is_spared_and_the_highest_priority_is_as_low_as_can_be(seed: int) -> None:
    """Against every part of up to eight candidates."""
    dice = random.Random(seed)
    world = World(hosts=3, policies=QUIET)
    for number in range(dice.randrange(3, 9)):
        wanted = gang(
            dice.choice([1, 1, 2]), gpus=dice.choice([1, 2, 4]), strategy=SPOT, priority=dice.randint(1, 3)
        )
        world.submit(f"s{number}", wanted)
        if job_of(world, f"s{number}").places:
            world.run(f"s{number}")
            world.wait(dice.uniform(1, 4))
    wanted = gang(dice.choice([1, 2, 3]), gpus=dice.choice([2, 4]), priority=3)
    job = Job("b", "ann", "", "b", {}, wanted, "{}", Wall(0.0), number=world.cluster.sequence + 1)
    hosts = list(world.cluster.hosts.values())
    now = Now(Mono(world.mono), Wall(world.wall))
    preemption = preempt.Preemption(world.cluster, now)
    found = preemption.find_room(job, hosts)
    trial = preempt.Trial(job, hosts, frozenset(), world.cluster.free_capacity)
    names = [other.id for other in preemption.candidates(job)]
    enough = [
        part for size in range(len(names) + 1) for part in itertools.combinations(names, size) if trial.fits(part)
    ]
    if not enough:
        assert found is None
        return
    assert found is not None
    assert trial.fits(found.victims)
    assert not any(trial.fits([n for n in found.victims if n != spared]) for spared in found.victims)

    def highest(part: tuple[str, ...]) -> int:
        return max((job_of(world, name).gang.priority for name in part), default=0)

    assert highest(found.victims) == min(map(highest, enough))


# --- Words --------------------------------------------------------------------------------------------------------


def test_waiting_spot_job_says_when_it_may_start_out_of_turn() -> None:
    world = waits_for_two()
    world.submit("s", gang(1, strategy=SPOT))
    world.submit("s2", gang(1, gpus=2, strategy=SPOT))
    assert why(world, "s2") == (
        "behind large in the queue, which needs 4 GPUs on one host (0 free on the best);"
        " being SPOT, it starts ahead of its turn, on loan, as soon as enough is free for it"
    )


def test_running_loan_says_to_whom_it_gives_way_while_that_one_waits() -> None:
    world = waits_for_two()
    world.submit("s", gang(1, strategy=SPOT))
    world.run("s")
    assert health(world, "s").endswith(
        "; its hosts are on loan: it gives way when large, which waits ahead of it, can start there"
    )
    world.cancel("large")
    assert "loan" not in health(world, "s")


# --- No loops -----------------------------------------------------------------------------------------------------


def churn(seed: int, hours: int = 40, policies: Policies = QUIET) -> list[list[str]]:
    """Random jobs on random hosts: the preemptions of each hour after the last was submitted and three have ended."""
    dice = random.Random(seed)
    world = World(hosts=dice.randrange(2, 5), policies=policies)
    for number in range(dice.randrange(6, 14)):
        name = f"j{number}"
        pool = Pool(dice.choice([1, 1, 2, 3]), Task(("x",)), gpus=dice.choice([1, 2, 4]))
        strategy = dice.choice([SPOT, SPOT, Strategy.STANDARD])
        wanted = Gang(
            (pool,),
            success=SuccessPolicy.ALL,
            strategy=strategy,
            priority=dice.randint(1, 3),
            max_wait_s=0.0,
            timeout_s=FOREVER_S,
        )
        if pool.replicas * (1 if pool.gpus > 2 else 0.5) > len(world.cluster.hosts):
            continue
        settle(world, world.submit(name, wanted))
    for name in dice.sample(sorted(world.cluster.jobs), 3):
        told = world.cancel(name)
        for index in range(len(job_of(world, name).places)):
            told += world.report(name, index, "EMPTY")
        settle(world, told)
    return [settle(world, world.wait(HOUR_S)) for _ in range(hours)]


def settle(world: World, told: list[str]) -> list[str]:
    """Whatever was placed runs, and whatever gave way is empty, until nothing follows; the preemptions."""
    found: list[str] = []
    for _ in range(200):
        found += preempted(told)
        told = []
        for job in list(world.cluster.jobs.values()):
            if job.vacating is not None and job.awaited:
                for index in list(job.awaited):
                    told += world.report(job.id, index, "EMPTY")
            elif job.state.name == "PENDING" and not job.launched:
                world.run(job.id)
        if not told:
            return found
    raise AssertionError("jobs preempt each other for ever")


@pytest.mark.parametrize("seed", range(25))
def test_preemption_comes_to_an_end_when_nothing_else_happens(seed: int) -> None:
    hours = churn(seed)
    assert not any(hours[len(hours) // 2 :])


def test_stories_preempt_and_a_planted_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing: without the order of the queue the same stories never come to rest."""
    assert sum(len(names) for seed in range(25) for names in churn(seed, hours=3)) > 5
    monkeypatch.setattr(preempt, "gives_way_to", lambda cluster, victim, job, now: victim.loan is not None)

    def rests(seed: int) -> bool:
        try:
            return not any(churn(seed)[20:])
        except AssertionError:
            return False

    assert not all(map(rests, range(25)))
