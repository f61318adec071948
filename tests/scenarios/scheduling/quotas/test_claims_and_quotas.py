"""A job within its project's guarantee is served before those that wait for the project's quota, and is told so."""

from __future__ import annotations

from tests.scenarios.queue_stories import job_of, placed, why
from tests.scenarios.scheduling.quotas.test_guarantees import lent, of
from tests.scenarios.scheduling.test_dry_runs import tried

from holdfast_controller.core.model.accounts.quota import Quota

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
