"""Situations of a job that a user meets, each a world in which it has come about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.scenarios.hang_stories import hangs_until_restart
from tests.scenarios.queue_stories import policies
from tests.scenarios.training import training
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Retries, Strategy
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.job_summary import Summary, summary_of


def summary(world: World, job: str = "a") -> Summary:
    queue = QueueView(world.cluster, schedulable_hosts(world.cluster), world.policies.quotas)
    return summary_of(world.cluster, world.cluster.jobs[job], queue, Now(Mono(world.mono), Wall(world.wall)))


def running(hosts: int = 3, **rules: object) -> World:
    world = World(hosts=hosts)
    world.submit("a", gang(**rules))  # type: ignore[arg-type]
    world.run("a")
    return world


def steps(world: World, step: float | None = 48_120.0, total: float | None = None, **output: Any) -> None:
    """Both workers report progress."""
    job = world.cluster.jobs["a"]
    for member, place in zip(job.gang.members, job.places, strict=True):
        ranks = tuple(RankFeatures(rank, Motion.WORKING, world.mono) for rank in member.ranks)
        features = OutputFeatures(world.mono, step, step_total=total, **output)
        world.features("a", WorkerFeatures(member.name, place.host, world.mono, ranks, features))
    world.wait(1, beating=list(world.sessions))


def fail(world: World, said: tuple[str, ...] = ("ValueError: bad batch",)) -> None:
    generation = world.cluster.jobs["a"].generation
    world.exit("a", 1, 7, said=said, message="exited with code 7")
    if not world.cluster.jobs["a"].terminal:
        world.exit("a", 0, "STOPPED:15", generation)


# --- Situations ---------------------------------------------------------------------------------------------------


def queued_behind_quota() -> World:
    world = World(hosts=2, policies=policies(any=Quota(gpus=4)))
    world.submit("b", gang(1))
    world.submit("a", gang(1))
    return world


def queued_for_space() -> World:
    world = World(hosts=2)
    world.submit("b", gang(1))
    world.submit("c", gang(1, gpus=2))
    world.submit("a", gang(1))
    return world


def queued_behind_another() -> World:
    world = World(hosts=1)
    for name in ("c", "b", "a"):
        world.submit(name, gang(1))
    return world


def no_host() -> World:
    world = World()
    world.submit("a", gang(1))
    return world


def starting() -> World:
    world = World(hosts=2)
    world.submit("a", gang())
    return world


def trains() -> World:
    world = running()
    steps(world, total=120_000.0)
    return world


def counts_epochs() -> World:
    world = running()
    steps(world, None, total=200.0, bar_step=40.0)
    return world


def evaluates() -> World:
    world = running()
    steps(world, phase="evaluate")
    return world


def trains_for(*step_s: float) -> World:
    """A step is reported each minute or so; each of these is the time of a step, for an hour."""
    world, step = running(), 0.0
    for each in step_s:
        for _ in range(61):
            world.wait(59, beating=list(world.sessions))
            step += 60 / each
            steps(world, step, total=120_000.0)
    return world


def trains_as_usual() -> World:
    return trains_for(1.5, 1.45)


def trains_slower() -> World:
    return trains_for(1.5, 2.0)


def says_nothing() -> World:
    world = running()
    steps(world, None)
    return world


def suspected() -> World:
    program = training()
    program.stands_still(40)
    return program.world


def hang_only_reported() -> World:
    program = training(action=HangAction.NOTIFY)
    program.stands_still(40)
    return program.world


def hang_held() -> World:
    program = training()
    program.world.hold("a", 3600.0)
    program.stands_still(120)
    return program.world


def hang_relaunching() -> World:
    program = training()
    hangs_until_restart(program)
    return program.world


def hang_relaunched() -> World:
    program = training()
    hangs_until_restart(program)
    for rank in (0, 1):
        program.world.exit("a", rank, "HANG_KILLED:9", 1)
    program.restarts()
    steps(program.world, 700.0)
    return program.world


def hang_again() -> World:
    program = training(max_hang_restarts=3)
    program.comes_back, program.step = True, 700.0
    for _ in range(2):
        hangs_until_restart(program)
        generation = program.world.cluster.jobs["a"].generation - 1
        for rank in (0, 1):
            program.world.exit("a", rank, "HANG_KILLED:9", generation)
        program.restarts()
        program.trains(300)
    return program.world


def relaunching() -> World:
    world = running()
    fail(world)
    return world


def relaunched() -> World:
    world = running()
    fail(world)
    world.wait(20, beating=list(world.sessions))
    world.run("a")
    steps(world)
    return world


def backs_off() -> World:
    world = World(hosts=2)
    world.submit("a", replace(gang(), retries=Retries(backoff_s=60.0)))
    world.run("a")
    fail(world)
    world.launch("a")
    return world


def fails_again() -> World:
    world = running()
    for step in (10.0, 5.0):
        steps(world, step)
        fail(world)
        world.run("a")
    steps(world, 4.0)
    return world


def host_silent() -> World:
    world = running()
    world.hang_up("host-1")
    world.wait(20, beating=["host-0", "host-2"])
    return world


def host_lost_waits_for_fence() -> World:
    world = running()
    world.hang_up("host-1")
    world.wait(100, beating=["host-0", "host-2"])
    return world


def host_lost_and_left() -> World:
    world = running(replace_when_lost=True, hosts=2)
    world.hang_up("host-1")
    world.wait(100, beating=["host-0"])
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    return world


def outlives_kill() -> World:
    world = running()
    fail(world)
    world.report("a", 1, "STUCK", message="host-1: pid 5 is in D state")
    return world


def held() -> World:
    world = running()
    steps(world)
    world.hold("a", 3600.0)
    return world


def drained() -> World:
    world = running()
    world.drain("host-1", 0.0)
    world.wait(1, beating=list(world.sessions))
    return world


def draining(deadline_s: float | None) -> Callable[[], World]:
    def situation() -> World:
        world = running()
        steps(world)
        world.drain("host-1", deadline_s)
        world.wait(1, beating=list(world.sessions))
        return world

    return situation


def preempted() -> World:
    world = World(hosts=1)
    world.submit("a", gang(1, strategy=Strategy.SPOT))
    world.run("a")
    world.submit("b", gang(1))
    world.exit("a", 0, "STOPPED:15")
    world.report("a", 0, "EMPTY")
    return world


def paused() -> World:
    world = running()
    world.pause("a")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.empty("a")
    return world


def pausing() -> World:
    world = running()
    world.pause("a")
    return world


def succeeded() -> World:
    world = running()
    world.wait(3700, beating=list(world.sessions))
    for rank in (0, 1):
        world.exit("a", rank, 0)
    world.empty("a")
    return world


def failed() -> World:
    world = running(max_worker_restarts=0)
    fail(world)
    world.empty("a")
    return world


def not_startable() -> World:
    world = World(hosts=2)
    world.submit("a", gang())
    world.report("a", 0, "PREPARED")
    world.report("a", 1, "CANNOT_PREPARE", message="host-1: no such directory /data")
    world.empty("a")
    return world


def failed_after_restarts() -> World:
    world = running(max_worker_restarts=1)
    steps(world, 10.0)
    fail(world)
    world.run("a")
    steps(world, 9.0)
    fail(world)
    world.empty("a")
    return world


def cancelled() -> World:
    world = running()
    world.cancel("a", by="bob")
    for rank in (0, 1):
        world.exit("a", rank, "STOPPED:15")
    world.empty("a")
    return world


def cancelling() -> World:
    world = running()
    world.cancel("a")
    return world


def expired() -> World:
    world = World(hosts=1)
    world.submit("b", gang(1))
    world.run("b")
    world.submit("a", gang(1, max_wait_s=600.0))
    world.wait(700, beating=["host-0"])
    return world
