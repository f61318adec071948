"""A job within its project's guarantee is served before those that wait for the project's quota, and is told so."""

from __future__ import annotations

import dataclasses

import pytest
from tests.scenarios.queue_stories import job_of, placed, why
from tests.scenarios.scheduling.quotas.test_guarantees import HOUR_S, POLICIES, guarantee, lent, of, stopped
from tests.scenarios.scheduling.test_dry_runs import tried
from tests.scenarios.world import World

from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import HostSelector, Pool, Task
from holdfast_controller.core.scheduling.fair_share import reclaim

NEEDS = "needs 4 GPUs on one host (0 free on the best)"


def test_a_claim_waits_for_hosts_and_not_for_what_jobs_ahead_leave_of_the_quota() -> None:
    world = lent(ran_s=60.0, quotas={"vision": Quota(gpus=8)})
    world.submit("large", of("vision", workers=2))
    assert tried(world, of("vision")).wait_reason == NEEDS
    world.submit("small", of("vision"))
    assert why(world, "small").startswith(f"{NEEDS}; vision is guaranteed 4 GPUs, and it waits within that")
    assert not job_of(world, "small").over_quota
    assert placed(world.wait(3600.0)) == []
    assert why(world, "small").startswith(NEEDS)


def test_many_claims_that_wait_for_hosts_of_their_own_keep_no_other_from_its_guarantee(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred of them, on hosts that others hold within guarantees, kept a project from its own for as long."""
    monkeypatch.setattr(reclaim, "CLAIMS_IN_VAIN", 4)
    world = World(hosts=8, policies=POLICIES)
    for project, gpus in (("owner", 24), *((f"p{number}", 1) for number in range(6)), ("vision", 4)):
        guarantee(world, project, gpus)
    for number in range(8):
        named = HostSelector(hosts=frozenset({f"host-{number}"}))
        world.submit(f"b{number}", of("owner" if number < 6 else "speech", selector=named))
        world.run(f"b{number}")
    world.wait(2 * HOUR_S)
    for number in range(6):
        named, pools = HostSelector(hosts=frozenset({f"host-{number}"})), (Pool(1, Task(("x",)), gpus=1),)
        asked = dataclasses.replace(of(f"p{number}"), pools=pools, selector=named)
        assert not stopped(world.submit(f"w{number}", asked))
    assert stopped(world.submit("v", of("vision"))) == ["b7 leaves to RETRY: PREEMPTED of job v"]
