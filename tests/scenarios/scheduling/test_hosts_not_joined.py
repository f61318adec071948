"""A job that no hosts that have joined could hold, even empty, waits for others and stands in nobody's way."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.queue_stories import finish, policies, why
from tests.scenarios.scheduling.loans.test_spot_loans import QUIET
from tests.scenarios.scheduling.test_pool_selectors import hosts_of, labelled, pools
from tests.scenarios.world import World, gang, inventory

from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.run_times import Backfill
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.share_commands import GuaranteeAsked

IDLE = "; the hosts that have joined could not hold it, so it keeps none from others"


@pytest.mark.parametrize("backfill", list(Backfill))
def test_others_start_on_hosts_of_a_job_one_of_whose_pools_has_none_yet(backfill: Backfill) -> None:
    world = labelled(dataclasses.replace(QUIET, backfill=backfill), h1="a", h2="a")
    world.submit("typo", pools("gpu=a", "gpu=aa"))
    assert why(world, "typo") == f"needs a host that its pool may have (gpu=aa){IDLE}"
    ahead = world.cluster, st.JobSubmission(0, "ann", "", "other", JobPlan("other", gang(1), "{}"))
    planned = dry_run(*ahead, world.policies, Now(Mono(world.mono), Wall(world.wall)))
    world.submit("other", gang(1))
    world.submit("last", gang(2))
    assert hosts_of(world, "other") == ["h1"]
    assert hosts_of(world, "other") == [place.host for place in planned.places]
    assert why(world, "last").startswith(
        "needs 4 GPUs on one host (0 free on the best); 1 of 2 workers would fit now"
    )
    # From the moment in which its host joins the first one comes first, and keeps what it needs.
    world.join("h3", labels={"gpu": "aa"})
    assert hosts_of(world, "typo") == ["h2", "h3"]


def test_a_job_for_a_host_that_has_come_back_smaller_keeps_nothing_from_others() -> None:
    world = World(hosts=2, policies=QUIET)
    world.submit("busy", gang(2))
    world.run("busy")
    world.submit("large", gang(2))
    finish(world, "busy")
    assert hosts_of(world, "large")
    world.cancel("large")
    world.submit("again", gang(2))
    world.hang_up("host-1")
    world.join("host-1", inventory(2, name="host-1"))
    world.empty("large")
    assert "no host could hold it" not in why(world, "again")
    assert "the hosts that have joined could not hold it" in why(world, "again")
    world.submit("small", gang(1, gpus=2))
    assert hosts_of(world, "small") == ["host-1"]


def test_such_a_job_takes_no_part_of_its_quota_or_guarantee() -> None:
    rules = policies(default=Quota(running_jobs=1))
    world = labelled(dataclasses.replace(rules, leases=QUIET.leases), h1="a", h2="a")
    world.step(GuaranteeAsked(0, "root", "default", 8))
    world.submit("typo", pools("gpu=a", "gpu=aa"))
    world.submit("other", gang(1))
    assert hosts_of(world, "other") == ["h1"]


def test_a_host_whose_gpus_cannot_be_read_is_waited_for_as_one_under_repair() -> None:
    world = World(policies=QUIET)
    world.join("host-0")
    world.join("host-1")
    world.submit("busy", gang(1))
    world.submit("large", gang(2))
    broken = dataclasses.replace(inventory(0, name="host-1"), gpu_problem="the driver doesn't answer")
    world.hang_up("host-1")
    world.join("host-1", broken)
    world.submit("small", gang(1, gpus=1))
    finish(world, "busy")
    assert not hosts_of(world, "small")
    assert "not hold it" not in why(world, "large")
