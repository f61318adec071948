"""Projects over their quota: who waits, who doesn't, what is said of it, and that it costs no job its place."""

from __future__ import annotations

import pytest
from tests.scenarios.queue_stories import cpu, finish, job_of, placed, policies, states, why
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.accounts.quota import Quota


def test_job_over_its_project_s_quota_waits_and_stops_nobody_of_another_project() -> None:
    world = World(hosts=3, policies=policies(vision=Quota(gpus=6)))
    world.submit("a", gang(1, project="vision"))
    assert world.submit("b", gang(1, project="vision"))[1] == (
        "b queued: over quota: project vision uses 4 of its 6 GPUs; this job needs 4"
    )
    assert placed(world.submit("c", gang(1))) == ["c placed g1 on host-1"]
    # One of the same project that would fit does not push in: b waits for what it would take.
    told = world.submit("d", gang(1, gpus=2, project="vision"))
    assert told[1] == (
        "d queued: over quota: project vision uses 4 of its 6 GPUs, jobs ahead wait for 4 more; this job needs 2"
    )
    assert why(world, "d") == told[1].removeprefix("d queued: ")
    assert placed(finish(world, "a")) == ["b placed g1 on host-0", "d placed g1 on host-2"]


def test_number_of_running_jobs_is_limited_too() -> None:
    world = World(hosts=2, policies=policies(any=Quota(running_jobs=1)))
    world.submit("a", gang(1))
    assert world.submit("b", gang(1))[1] == "b queued: over quota: project default runs 1 of its 1 jobs"
    assert placed(world.submit("c", gang(1, project="vision"))) == ["c placed g1 on host-1"]
    assert placed(finish(world, "a")) == ["b placed g1 on host-0"]


def test_project_s_own_quota_replaces_everybody_s() -> None:
    world = World(hosts=2, policies=policies(any=Quota(gpus=4), vision=Quota(gpus=8)))
    world.submit("a", gang(1, project="vision"))
    assert placed(world.submit("b", gang(1, project="vision"))) == ["b placed g1 on host-1"]


def test_quota_that_jobs_ahead_use_up_is_the_reason_of_those_behind_them() -> None:
    """Though it would suffice for each alone, and there is a host for the second."""
    world = World(hosts=2, policies=policies(any=Quota(gpus=8)))
    world.cordon("host-1")
    world.submit("a", gang(2))
    told = world.submit("b", gang(1))
    assert why(world, "a").startswith("needs 4 GPUs on one host")
    assert told[1] == (
        "b queued: over quota: project default uses 0 of its 8 GPUs, jobs ahead wait for 8 more; this job needs 4"
    )


@pytest.mark.parametrize("restarted", [False, True])
def test_job_that_waits_for_its_quota_does_not_expire(restarted: bool) -> None:
    """Its longest wait is for hosts, and begins when the quota suffices."""
    world = World(hosts=1, policies=policies(vision=Quota(gpus=4), any=Quota(gpus=16)))
    world.submit("a", gang(1, project="vision"))
    world.submit("b", gang(1, project="vision", max_wait_s=600.0))
    assert world.wait(100_000, beating=["host-0"]) == []
    if restarted:
        world.restart_controller(down_s=1000)
        world.join("host-0", places=[world.place("a", 0, "PREPARED")])
    world.submit("other", gang(1, priority=3))
    told = finish(world, "a")
    assert placed(told) == ["other placed g1 on host-0"]
    assert "b queued: its quota suffices now; waits for hosts" in told
    if restarted:
        world.wait(300, beating=["host-0"])
        world.restart_controller(down_s=100)
        world.join("host-0", places=[world.place("other", 0, "PREPARED")])
        world.wait(199, beating=["host-0"])
    else:
        world.wait(599, beating=["host-0"])
    assert states(world)["b"] == "QUEUED"
    assert world.wait(2, beating=["host-0"]) == ["b ending EXPIRED", "b ended EXPIRED"]


def test_longest_wait_stops_when_the_quota_is_used_up_again() -> None:
    world = World(hosts=2, policies=policies(any=Quota(gpus=4)))
    world.cordon("host-0")
    world.cordon("host-1")
    world.submit("b", gang(1, max_wait_s=600.0))
    world.wait(500)
    assert world.submit("urgent", gang(1, priority=3))[1:3] == [
        "b queued: over quota: project default uses 0 of its 4 GPUs, jobs ahead wait for 4 more; this job needs 4",
        "urgent queued: no host takes work at present",
    ]
    assert "b ending EXPIRED" not in world.wait(10_000)


def test_job_that_does_not_wait_for_hosts_waits_for_its_quota_at_no_cost_to_its_tries() -> None:
    world = World(hosts=2, policies=policies(any=Quota(gpus=4)))
    world.submit("a", gang(1))
    assert world.submit("b", gang(1, waits=False))[1].startswith("b queued: over quota: ")
    assert why(world, "b").startswith("over quota: ")
    assert world.wait(100_000, beating=["host-0", "host-1"]) == []
    assert job_of(world, "b").placement_attempts == 0
    assert placed(finish(world, "a")) == ["b placed g1 on host-0"]


def test_job_that_can_never_fit_its_quota_is_refused_with_path_and_fix() -> None:
    world = World(hosts=2, policies=policies(vision=Quota(gpus=4), empty=Quota(running_jobs=0)))
    assert world.submit("a", gang(2, project="vision")) == ["> refuse NEVER_FITS"]
    (violation,) = world.sent[-1].error.violations  # type: ignore[union-attr]
    assert violation.path == "jobSpec.workerPoolSpecs"
    assert violation.problem == "the job needs 8 GPUs, and project vision may hold no more than 4"
    assert "ask for less" in violation.fix
    assert world.submit("b", gang(1, project="empty")) == ["> refuse NEVER_FITS"]


def test_what_a_retry_keeps_and_what_is_not_proven_empty_counts() -> None:
    world = World(hosts=4, policies=policies(any=Quota(gpus=8)))
    world.submit("a", gang(2))
    world.run("a")
    world.submit("b", gang(1))
    world.exit("a", 1, "SIGNALED:11")
    world.exit("a", 0, "STOPPED:15", 1)
    world.run("a")
    world.exit("a", 1, "SIGNALED:11")
    world.exit("a", 0, "STOPPED:15")
    assert job_of(world, "a").reserved == {0}
    assert placed(world.report("a", 0, "EMPTY")) == []
    assert why(world, "b") == "over quota: project default uses 8 of its 8 GPUs; this job needs 4"
    assert placed(world.report("a", 1, "EMPTY")) == ["a placed g3 on host-0 host-2"], "its own share doesn't count"


def test_room_that_a_job_ahead_waits_for_is_not_spent_on_quota_by_one_behind() -> None:
    world = World(hosts=2, policies=policies(vision=Quota(running_jobs=2)))
    world.submit("a", gang(1, project="vision"))
    world.submit("b", gang(2, project="vision"))
    told = world.submit("c", cpu(project="vision"))
    assert not placed(told), "b needs the second of its project's two jobs"
    assert placed(finish(world, "a")) == ["b placed g1 on host-0 host-1", "c placed g1 on host-0"]
