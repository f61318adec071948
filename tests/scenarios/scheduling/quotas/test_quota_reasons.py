"""The reasons of jobs that wait for a quota: found in whatever order they are asked for, and only as far as needed."""

from __future__ import annotations

import random

import pytest
from tests.scenarios.queue_stories import policies, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts import quota
from holdfast_controller.core.model.accounts.quota import Quota, Waiting
from holdfast_controller.core.scheduling.wait_reasons import pending_reason
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView

LIMITS = {"vision": Quota(gpus=6), "audio": Quota(running_jobs=1), "user/ann": Quota(gpus=9)}


def a_queue(seed: int) -> World:
    """Jobs of three projects that wait behind each other, two of which are limited."""
    dice, world = random.Random(seed), World(hosts=2, policies=policies(**LIMITS))
    for number in range(30):
        project = dice.choice(["vision", "audio", "default"])
        world.submit(
            f"j{number}", gang(1, gpus=dice.choice([1, 2, 4]), project=project, priority=dice.randint(1, 3))
        )
    return world


def view(world: World) -> QueueView:
    return QueueView(world.cluster, schedulable_hosts(world.cluster), world.reactor.policies.quotas)


@pytest.mark.parametrize("seed", range(20))
def test_reasons_do_not_depend_on_what_was_asked_before(seed: int) -> None:
    world = a_queue(seed)
    quotas, holdings, waiting = world.reactor.policies.quotas, world.cluster.holdings, Waiting()
    expected = {}
    for job in map(world.cluster.jobs.__getitem__, world.cluster.queue):
        expected[job.id] = quota.lack(quotas, holdings, job.id, job.owner, job.gang, waiting)
        waiting.charge(job.owner, job.gang, holdings.gpus_by_job.get(job.id))
    asked, seen = list(world.cluster.jobs), view(world)
    random.Random(seed).shuffle(asked)
    found = {name: seen.quota_lack(world.cluster.jobs[name]) for name in asked}
    assert any(expected.values())
    assert found == {name: expected.get(name, "") for name in asked}


def test_a_submission_looks_at_no_quota_of_other_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked at the quotas of all that wait: 10,000 of them held up the controller for a tenth of a second."""
    world = World(hosts=1, policies=policies(vision=Quota(gpus=6)))
    for number in range(50):
        world.submit(f"j{number}", gang(1))
    looked_at, real = [], quota.lack

    def counted(*args: object) -> str:
        looked_at.append(args[2])
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(pending_reason, "lack", counted)
    world.submit("other", gang(1))
    assert looked_at == []
    world.submit("mine", gang(1, project="vision"))
    world.submit("mine-too", gang(1, project="vision"))
    assert "over quota" in why(world, "mine-too")
    assert set(looked_at) == {"mine", "mine-too"}


def test_a_view_outlives_the_jobs_that_it_has_not_looked_at() -> None:
    world = a_queue(1)
    first, *_, last = list(world.cluster.queue)
    seen = view(world)
    seen.quota_lack(world.cluster.jobs[first])
    for name in list(world.cluster.queue)[3:6]:
        world.cluster.jobs.whole.pop(name)
    assert isinstance(seen.quota_lack(world.cluster.jobs[last]), str)
