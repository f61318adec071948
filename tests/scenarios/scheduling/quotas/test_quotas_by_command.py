"""Quotas that are set by command: in place of those of the settings, limit by limit, at once and for good."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.scenarios.queue_stories import placed, policies
from tests.scenarios.world import World, gang

from holdfast.errors import InvalidInput
from holdfast_controller.core.model.accounts.quota import UNLIMITED, Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.scheduling.fair_share.set_quotas import quota_states
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.commands import PoliciesChanged
from holdfast_controller.core.step.share_commands import GuaranteeAsked, QuotaAsked


def give(world: World, holder: str, *, clear: bool = False, **limits: int) -> list[str]:
    return world.step(QuotaAsked(1, "root", holder, Quota(**limits), clear))


def why(world: World, job: str) -> str:
    now = Now(Mono(world.mono), Wall(world.wall))
    return str(world.reactor.queue_view(now).reason_of(world.cluster.jobs[job]))


def limits_of(world: World, holder: str) -> Quota | None:
    return world.reactor.policies.quotas.get(holder)


def test_one_that_is_lowered_makes_jobs_wait_and_one_that_is_raised_lets_them_start() -> None:
    world = World(hosts=3)
    assert give(world, "user/ann", gpus=4)[0] == "quota of user ann set to 4 GPUs by root"
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    assert why(world, "b") == "over quota: user ann uses 4 of its 4 GPUs; this job needs 4"
    assert placed(give(world, "user/ann", gpus=8)) == ["b placed g1 on host-1"]
    give(world, "user/ann", gpus=4)
    assert "a leaves" not in " ".join(world.sentences), "nothing is stopped"
    assert give(world, "user/ann", gpus=4) == ["> reply user/ann"], "as it is"


def test_a_wait_for_it_does_not_expire() -> None:
    world = World(hosts=1)
    give(world, "user/ann", running_jobs=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1, max_wait_s=60.0))
    assert world.wait(100_000, beating=["host-0"]) == []


def test_limits_that_were_not_set_follow_the_settings() -> None:
    world = World(hosts=1, policies=policies(user_any=Quota(gpus=8, running_jobs=2)))
    give(world, "user/ann", gpus=16)
    assert limits_of(world, "user/ann") == Quota(gpus=16, running_jobs=2)
    world.step(PoliciesChanged(policies(user_any=Quota(running_jobs=5), user_ann=Quota(waiting_jobs=7))))
    assert limits_of(world, "user/ann") == Quota(gpus=16, waiting_jobs=7), "an own table replaces that of all"
    give(world, "user/ann", gpus=UNLIMITED)
    assert limits_of(world, "user/ann") == Quota(waiting_jobs=7)
    give(world, "user/ann", clear=True)
    assert limits_of(world, "user/ann") == Quota(waiting_jobs=7)
    world.step(PoliciesChanged(policies()))
    assert limits_of(world, "user/ann") is None


def test_each_may_be_limited_by_command_and_setting_replaces_what_was_set() -> None:
    world = World(hosts=3)
    give(world, "*", gpus=4)
    world.submit("a", gang(1, project="vision"))
    world.submit("b", gang(1, project="vision"))
    assert why(world, "b").startswith("over quota: project vision uses 4 of its 4 GPUs")
    give(world, "*", running_jobs=3)
    assert limits_of(world, "*") == Quota(gpus=4, running_jobs=3), "limits that aren't named stay"
    assert placed(give(world, "*", clear=True, running_jobs=3)) == ["b placed g1 on host-1"]


def test_it_outlives_a_restart_of_the_controller() -> None:
    world = World(hosts=1)
    give(world, "vision", gpus=4, max_priority=2)
    world.restart_controller()
    assert limits_of(world, "vision") == Quota(gpus=4, max_priority=2)
    (state,) = quota_states(world.cluster, world.reactor.policies.quotas, lambda holder: True)
    assert (state.holder, state.by_command, state.gpus) == ("vision", Quota(gpus=4, max_priority=2), 0)


@pytest.mark.parametrize(
    ("holder", "limits", "path", "problem"),
    [
        ("user/ann", {}, "limits", "has none"),
        ("user/ann", {"gpus": -2}, "limits.gpus", "is -2"),
        ("user/ann", {"gpus": 1_000_001}, "limits.gpus", "is 1000001"),
        ("user/ann", {"running_jobs": -5}, "limits.runningJobs", "is -5"),
        ("user/ann", {"max_priority": 0}, "limits.maxPriority", "is 0"),
        ("user/ann", {"max_priority": 4}, "limits.maxPriority", "is 4"),
        ("user/", {"gpus": 4}, "user", "'' is no user's name"),
        ("user/a b", {"gpus": 4}, "user", "'a b' is no user's name"),
        ("No project", {"gpus": 4}, "project", "must "),
        ("", {"gpus": 4}, "project", "must "),
        ("llm", {"gpus": 4}, "limits.gpus", "is 4, and 8 GPUs are guaranteed to llm"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(
    holder: str, limits: dict[str, Any], path: str, problem: str
) -> None:
    world = World(hosts=1)
    world.step(GuaranteeAsked(1, "root", "llm", 8))
    give(world, holder, **limits)
    refused = world.sent[-1]
    assert isinstance(refused, act.Refuse) and isinstance(refused.error, InvalidInput)
    (violation,) = refused.error.violations
    assert violation.path == path and violation.problem.startswith(problem) and violation.fix
    assert not world.cluster.shares.quotas


@pytest.mark.parametrize("seed", range(10))
def test_no_user_ever_starts_a_job_above_what_counts_then(seed: int) -> None:
    dice = random.Random(seed)
    world = World(hosts=4, policies=policies(user_any=Quota(gpus=dice.choice([4, 8]))))
    for number in range(30):
        owner = dice.choice(["ann", "bob"])
        if dice.random() < 0.4:
            limits = {"gpus": dice.choice([UNLIMITED, 0, 4, 8, 12]), "running_jobs": dice.choice([UNLIMITED, 1, 2])}
            world.step(QuotaAsked(1, "root", f"user/{owner}", Quota(**limits), clear=dice.random() < 0.3))
        before = {name: use.gpus for name, use in world.cluster.holdings.by_holder.items()}
        world.submit(f"j-{number}", gang(1, gpus=dice.choice([1, 4])), owner=owner)
        for name, use in world.cluster.holdings.by_holder.items():
            limit = world.reactor.policies.quotas.get(name) or world.reactor.policies.quotas["user/*"]
            grew = use.gpus > before.get(name, 0)
            assert not (name.startswith("user/") and grew and limit.gpus is not None and use.gpus > limit.gpus)
        if dice.random() < 0.1:
            world.restart_controller()
            for host in list(world.cluster.hosts):
                world.join(
                    host,
                    places=[
                        world.place(job.id, index, "PREPARED")
                        for job in world.cluster.jobs.whole.values()
                        for index, place in enumerate(job.places)
                        if place.host == host
                    ],
                )
