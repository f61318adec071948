"""Quotas that are lowered below what runs or waits: who can't start any more takes nothing from those who can."""

from __future__ import annotations

from tests.scenarios.queue_stories import job_of, placed
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.accounts.quota import UNLIMITED, Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step.commands import JobSubmission
from holdfast_controller.core.step.share_commands import QuotaAsked


def give(world: World, gpus: int, holder: str = "default") -> list[str]:
    return world.step(QuotaAsked(1, "root", holder, Quota(gpus=gpus)))


def why(world: World, job: str) -> str:
    now = Now(Mono(world.mono), Wall(world.wall))
    return str(world.reactor.queue_view(now).reason_of(world.cluster.jobs[job]))


def held(world: World) -> list[str]:
    return sorted(key for host in world.cluster.hosts.values() for key in host.allocations)


def moved(**rules: object) -> World:
    """Four hosts; job ``a`` of two workers has to leave host-1, and may hold less by now."""
    world = World(hosts=4)
    world.submit("a", gang(2, **rules))  # type: ignore[arg-type]
    world.run("a")
    give(world, 4)
    world.drain("host-1", 0.0)
    world.wait(1, beating=world.sessions)
    return world


def test_a_job_that_its_quota_keeps_from_going_on_holds_neither_its_places_nor_its_spares() -> None:
    world = moved(spares=1, replace_when_lost=True)
    world.empty("a")
    assert held(world) == []
    assert any(said.endswith("; what it had kept is free for others") for said in world.sentences)
    assert why(world, "a") == "over quota: project default uses 0 of its 4 GPUs; this job needs 12"
    for job in ("b", "c", "d"):
        assert placed(world.submit(job, gang(1, project="vision")))


def test_jobs_that_wait_for_what_it_gives_back_start_at_once() -> None:
    world = World(hosts=2)
    world.submit("a", gang(2))
    world.run("a")
    world.drain("host-1", 0.0)
    world.wait(1, beating=world.sessions)
    world.empty("a")
    world.submit("b", gang(1, project="vision"))
    told = give(world, 4) + world.wait(1, beating=world.sessions)
    assert "a queued: over quota: project default uses 0 of its 4 GPUs; this job needs 8" in told[1]
    assert placed(told) == ["b placed g1 on host-0"]


def test_it_goes_on_once_the_quota_is_raised_over_a_restart() -> None:
    world = moved()
    world.empty("a")
    world.restart_controller()
    for name in range(4):
        world.join(f"host-{name}")
    assert not job_of(world, "a").reserved
    assert placed(give(world, UNLIMITED)) == ["a placed g2 on host-0 host-2"]


def test_a_waiting_job_that_is_larger_than_its_quota_by_now_keeps_nothing_of_it_from_those_behind() -> None:
    world = World(hosts=2)
    world.submit("a", gang(2))
    world.submit("b", gang(2))
    world.submit("c", gang(1))
    give(world, 4)
    world.cancel("a")
    world.empty("a")
    assert why(world, "b") == "over quota: project default uses 4 of its 4 GPUs; this job needs 8"
    assert world.state("c").name == "PENDING"
    asked = JobSubmission(1, "ann", "", "d", JobPlan("d", gang(1, gpus=1), "{}"))
    found = dry_run(world.cluster, asked, world.reactor.policies, Now(Mono(world.mono), Wall(world.wall)))
    assert found.wait_reason == "over quota: project default uses 4 of its 4 GPUs; this job needs 1"


def test_one_that_it_would_let_start_later_still_comes_first() -> None:
    world = World(hosts=2)
    give(world, 4)
    for job in ("a", "b", "c"):
        world.submit(job, gang(1, gpus=4 if job != "c" else 2))
    give(world, 6)
    assert why(world, "c").endswith("jobs ahead wait for 4 more; this job needs 2")
