"""Limits on a user: on what all jobs of theirs hold, in any project, and on their priority."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import finish, placed, policies, why
from tests.scenarios.world import World, gang

from holdfast.errors import NeverFits, TooMany
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.submit import refusal
from holdfast_controller.core.step.commands import JobSubmission


def refused(world: World, what: Gang, owner: str = "ann") -> str:
    error = refusal(world.cluster, JobSubmission(0, owner, "", "new", JobPlan("new", what, "{}")), world.policies)
    assert isinstance(error, NeverFits | TooMany | None)
    return str(error or "")


def test_a_user_over_their_quota_waits_in_every_project_and_others_go_on() -> None:
    world = World(hosts=3, policies=policies(user_ann=Quota(gpus=6)))
    world.submit("a", gang(1, project="vision"))
    told = world.submit("b", gang(1, project="speech"))
    assert told[1] == "b queued: over quota: user ann uses 4 of its 6 GPUs; this job needs 4"
    assert why(world, "b") == told[1].removeprefix("b queued: ")
    assert placed(world.submit("c", gang(1, project="speech"), owner="bob")) == ["c placed g1 on host-1"]
    assert placed(finish(world, "a")) == ["b placed g1 on host-0"]
    assert {"user/ann", "user/bob", "speech"} == set(world.cluster.holdings.by_holder)


def test_the_quota_of_everybody_counts_for_each_user_apart() -> None:
    world = World(hosts=3, policies=policies(user_any=Quota(running_jobs=1), user_lead=Quota(running_jobs=2)))
    world.submit("a", gang(1))
    assert world.submit("b", gang(1))[1] == "b queued: over quota: user ann runs 1 of its 1 jobs"
    assert placed(world.submit("c", gang(1), owner="lead")) == ["c placed g1 on host-1"]
    assert placed(world.submit("d", gang(1), owner="lead")) == ["d placed g1 on host-2"]


def test_both_quotas_of_a_job_count() -> None:
    world = World(hosts=3, policies=policies(vision=Quota(gpus=4), user_ann=Quota(gpus=8)))
    world.submit("a", gang(1, project="vision"))
    assert "project vision uses 4 of its 4 GPUs" in world.submit("b", gang(1, project="vision"))[1]
    # What waits for its project's quota is ahead of other jobs of its owner, too.
    told = world.submit("c", gang(1, project="speech"))
    assert told[1] == (
        "c queued: over quota: user ann uses 4 of its 8 GPUs, jobs ahead wait for 4 more; this job needs 4"
    )


@pytest.mark.parametrize(
    ("quotas", "owner", "who"),
    [
        ({"user_any": Quota(max_priority=2)}, "ann", "user ann"),
        ({"any": Quota(max_priority=2)}, "ann", "project default"),
        ({"default": Quota(max_priority=2), "user_ann": Quota(max_priority=3)}, "ann", "project default"),
    ],
)
def test_a_priority_above_the_highest_is_refused(quotas: dict[str, Quota], owner: str, who: str) -> None:
    world = World(hosts=1, policies=policies(**quotas))
    assert refused(world, gang(1, priority=2), owner) == ""
    assert refused(world, gang(1, priority=3), owner) == (
        f"The job has 1 problem:\n  jobSpec.scheduling.priority: 3 is above 2, the highest that {who} may use"
        " (ask for less, name another project, or have an admin raise the quota)"
    )


def test_a_user_may_be_allowed_more_than_the_others() -> None:
    world = World(hosts=1, policies=policies(user_any=Quota(max_priority=1), user_lead=Quota()))
    assert "priority" in refused(world, gang(1, priority=3))
    assert refused(world, gang(1, priority=3), "lead") == ""


def test_a_users_own_number_of_waiting_jobs_replaces_everybodys() -> None:
    world = World(hosts=1, policies=policies(user_ann=Quota(waiting_jobs=1)))
    world.submit("runs", gang(1))
    world.submit("a", gang(1))
    assert refused(world, gang(1)) == (
        "ann has as many jobs waiting as one user may have: 1. Wait until some have started or cancel some; an admin"
        " can raise it: holdfast quota set --user ann --waiting N"
    )
    assert refused(world, gang(1), "bob") == ""
