"""Settings of the core that change while it runs: a raised quota lets jobs start, and leases stay as they were."""

from __future__ import annotations

from dataclasses import replace

from tests.scenarios.queue_stories import placed, policies, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.hosts.lease import LeasePolicy
from holdfast_controller.core.step.commands import PoliciesChanged


def test_a_quota_that_is_raised_lets_a_job_start_and_one_that_is_lowered_stops_none() -> None:
    world = World(hosts=3, policies=policies(vision=Quota(gpus=4)))
    world.submit("a", gang(1, project="vision"))
    world.submit("b", gang(1, project="vision"))
    assert placed(world.step(PoliciesChanged(policies(vision=Quota(gpus=8))))) == ["b placed g1 on host-1"]
    world.submit("c", gang(1, project="vision"))
    assert world.step(PoliciesChanged(policies(vision=Quota(gpus=4)))) == []
    assert why(world, "c") == "over quota: project vision uses 8 of its 4 GPUs; this job needs 4"
    assert placed(world.step(PoliciesChanged(policies()))) == ["c placed g1 on host-2"]


def test_a_job_that_waits_for_hosts_waits_for_a_new_quota_from_then_on() -> None:
    world = World(hosts=1)
    world.submit("a", gang(1))
    world.submit("b", gang(1))
    assert why(world, "b").startswith("needs 4 GPUs on one host")
    told = world.step(PoliciesChanged(policies(any=Quota(gpus=4))))
    assert told == ["b queued: over quota: project default uses 4 of its 4 GPUs; this job needs 4"]


def test_leases_are_those_of_the_start() -> None:
    """Hosts were told them when they connected, and count by them."""
    world = World(hosts=1)
    before = world.reactor.policies.leases
    changed = replace(world.reactor.policies, leases=LeasePolicy(1.0, 2.0, 3.0, 4.0), max_jobs=1)
    world.step(PoliciesChanged(changed))
    assert (world.reactor.policies.leases, world.reactor.policies.max_jobs) == (before, 1)
