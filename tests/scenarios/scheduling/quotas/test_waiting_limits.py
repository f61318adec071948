"""How many jobs one user, and one project, may have waiting: one more is refused with the limit and the way out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.scenarios.queue_stories import finish, policies
from tests.scenarios.world import World, gang

from holdfast.errors import HoldfastError, TooMany
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling import submit
from holdfast_controller.core.step.commands import JobSubmission


def refusal(world: World, project: str = "default", owner: str = "ann") -> HoldfastError | None:
    asked = JobSubmission(0, owner, "", "one-more", JobPlan("one-more", gang(1, project=project), "{}"))
    return submit.refusal(world.cluster, asked, world.policies)


def test_a_user_may_have_so_many_jobs_waiting_and_others_go_on() -> None:
    world = World(hosts=1, policies=replace(policies(), waiting_jobs_per_user=2))
    for name in ("runs", "a", "b"):
        world.submit(name, gang(1))
    assert world.submit("c", gang(1)) == ["> refuse TOO_MANY"]
    assert str(refusal(world)) == (
        "ann has as many jobs waiting as one user may have: 2. Wait until some have started or cancel some; an"
        " admin can raise it: holdfast quota set --user ann --waiting N"
    )
    world.submit("other", gang(1), owner="bob")
    assert "other" in world.cluster.jobs
    finish(world, "runs")
    world.submit("c", gang(1))
    assert "c" in world.cluster.jobs


@pytest.mark.parametrize("named", ["vision", "any"])
def test_a_project_may_have_so_many_jobs_waiting_of_all_its_users(named: str) -> None:
    world = World(hosts=1, policies=policies(**{named: Quota(waiting_jobs=1)}))
    world.submit("runs", gang(1))
    world.submit("a", gang(1, project="vision"))
    assert world.submit("b", gang(1, project="vision"), owner="bob") == ["> refuse TOO_MANY"]
    refused = refusal(world, "vision", "bob")
    assert isinstance(refused, TooMany)
    assert "Project vision has as many jobs waiting as it may have: 1." in refused.message
    assert refused.fix.endswith("raise it: holdfast quota set --project vision --waiting N")
