"""Promises of guarantees under chance: they are there in time, and no two jobs chase each other off a host."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.scenarios.queue_stories import finish, job_of
from tests.scenarios.scheduling.quotas.test_guarantees import HOUR_S, POLICIES, guarantee, of, stopped
from tests.scenarios.world import World

from holdfast_controller.core.model.gang import Strategy
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.scheduling.fair_share import reclaim


def settle(world: World, told: list[str]) -> list[str]:
    """Whatever was placed runs, and whatever gave way is empty, until nothing follows; the preemptions."""
    found: list[str] = []
    for _ in range(200):
        found += stopped(told)
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


PROJECTS = ("speech", "vision", "maps")


def churn(seed: int, steps: int, rest_h: int) -> list[list[str]]:
    """Random jobs, ends and guarantees, and then rest: the preemptions of each hour of rest."""
    dice = random.Random(seed)
    backfill = dice.choice(list(Backfill))
    world = World(hosts=dice.randrange(2, 5), policies=dataclasses.replace(POLICIES, backfill=backfill))
    for number in range(steps):
        match dice.randrange(8):
            case 0:
                settle(world, guarantee(world, dice.choice(PROJECTS), dice.choice([0, 2, 4, 8])))
            case 1 | 2:
                running = [job.id for job in world.cluster.jobs.values() if job.places and not job.stopping]
                if running:
                    settle(world, finish(world, dice.choice(running)))
            case 3:
                settle(world, world.wait(dice.choice([60.0, 1800.0, 5400.0])))
            case _:
                wanted = of(
                    dice.choice(PROJECTS),
                    dice.choice([1, 1, 1, 2]),
                    gpus=dice.choice([0, 1, 2, 4]),
                    strategy=dice.choice([Strategy.STANDARD, Strategy.STANDARD, Strategy.SPOT]),
                    priority=dice.randint(1, 3),
                )
                settle(world, world.submit(f"j{number}", wanted))
    return [settle(world, world.wait(HOUR_S)) for _ in range(rest_h)]


@pytest.mark.parametrize("seed", range(20))
def test_preemption_comes_to_an_end_when_nothing_else_happens(seed: int) -> None:
    assert not any(churn(seed, steps=40, rest_h=16)[8:])


def test_the_same_stories_preempt_and_a_planted_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing: if all is taken for borrowed, claims take turns for ever."""
    assert any(any(churn(seed, steps=40, rest_h=2)) for seed in range(20))
    monkeypatch.setattr(reclaim, "borrowers", lambda cluster, _: dict(cluster.holdings.gpus_by_job))

    def rests(seed: int) -> bool:
        try:
            return not any(churn(seed, steps=40, rest_h=16)[8:])
        except AssertionError:
            return False

    assert not all(map(rests, range(20)))


@pytest.mark.parametrize("seed", range(20))
def test_an_idle_projects_guarantee_is_there_after_a_loans_time_whatever_others_do(seed: int) -> None:
    """Others come and go all the while, on loan too; the claim is for whole hosts, so nothing splits it."""
    dice = random.Random(seed)
    world = World(hosts=4, policies=dataclasses.replace(POLICIES, backfill=dice.choice(list(Backfill))))
    guarantee(world, "vision", 8)
    for number in range(30):
        what = of("speech", gpus=dice.choice([1, 2, 4]), strategy=dice.choice([Strategy.STANDARD, Strategy.SPOT]))
        settle(world, world.submit(f"b{number}", what))
        settle(world, world.wait(dice.choice([1.0, 300.0])))
    settle(world, world.submit("v", of("vision", 2)))
    claimed_at, number = world.mono, 30
    while not job_of(world, "v").places:
        assert world.mono - claimed_at <= HOUR_S + 1.0, "the guarantee is late"
        settle(world, world.wait(dice.choice([60.0, 600.0])))
        running = [job.id for job in world.cluster.jobs.values() if job.places and not job.stopping]
        if running and dice.random() < 0.5:
            settle(world, finish(world, dice.choice(running)))
        settle(world, world.submit(f"b{number}", of(dice.choice(["speech", "maps"]), gpus=dice.choice([1, 4]))))
        number += 1
