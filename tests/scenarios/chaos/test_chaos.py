"""Anything may be said at any time, true or not: the invariants of ``World`` hold, and all ends well once it calms.

A failure names its seed; run that one alone to repeat it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.training import Training
from tests.scenarios.world import World, gang

from holdfast._base.job_file.choices import HangAction, RestartScope, SuccessPolicy
from holdfast.hang.pipeline.features import Motion
from holdfast.hang.pipeline.samples import State
from holdfast.hang.thresholds import HangSettings
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.gang import Retries, Strategy
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step.assignment import desired, quarantined
from holdfast_controller.core.step.step import Policies

HOSTS = 4
STEPS = 120
QUOTAS = {"vision": Quota(gpus=4), "*": Quota(running_jobs=3)}
STATES = [
    "PREPARING",
    "PREPARED",
    "PREPARED",
    "PREPARED",
    "RUNNING",
    "RUNNING",
    "CANNOT_PREPARE",
    "EMPTY",
    "EMPTY",
    "STUCK",
]
ENDS: list[str | int] = [0, 0, 0, 7, "SIGNALED:11", "STOPPED:15", "LOST_SHIM_DIED"]


def one_move(world: World, dice: random.Random) -> None:
    jobs = list(world.cluster.jobs.values())
    placed = [job for job in jobs if job.places]
    host = f"host-{dice.randrange(HOSTS)}"
    match dice.randrange(20):
        case 0:
            success = dice.choice(list(SuccessPolicy))
            action = dice.choice(list(HangAction))
            rules: dict[str, Any] = {
                "processes": dice.choice([1, 2]),
                "success": success,
                "max_worker_restarts": dice.choice([0, 1, 5]),
                "replace_when_lost": dice.random() < 0.3,
                "warning": dice.choice([None, None, WarningSignal(10, 20.0)]),
                "timeout_s": dice.choice([30.0, 1e6, 1e6]),
                "max_hang_restarts": dice.choice([0, 1, 3]),
                "hang": HangSettings(action, floor_s=10.0, ceiling_s=60.0, startup_timeout_s=30.0),
                "priority": dice.choice([1, 1, 2, 3]),
                "project": dice.choice(["default", "vision", "speech"]),
                "strategy": dice.choice([Strategy.STANDARD, Strategy.SPOT, Strategy.FLEX_START]),
                "max_wait_s": dice.choice([0.0, 60.0, 86400.0]),
                "waits": dice.random() < 0.8,
            }
            what = gang(dice.choice([1, 2, 3]), gpus=dice.choice([0, 1, 4]), **rules)
            scope, backoff_s = dice.choice(list(RestartScope)), dice.choice([0.0, 0.0, 20.0])
            retries = Retries(scope, dice.choice([0, 1, 3]), backoff_s=backoff_s, disabled=dice.random() < 0.1)
            world.submit(f"job-{len(jobs)}", replace(what, retries=retries))
        case 1 if jobs and dice.random() < 0.4:
            world.cancel(dice.choice(jobs).id)
        case 2 if jobs:
            world.restart(dice.choice(jobs).id)
        case 3:
            boot = dice.choice(["boot-1", "boot-1", "boot-1", "boot-2"])
            world.join(
                host,
                places=[world.place(j.id, i, dice.choice(STATES)) for j, i in _at(world, host, dice)],
                boot=boot,
            )
        case 4 if host in world.sessions and dice.random() < 0.3:
            world.hang_up(host)
        case 5:
            beating = [name for name in world.sessions if dice.random() < 0.9]
            world.wait(dice.choice([1.0, 10.0, 30.0, 100.0]), beating=beating)
        case 6 if dice.random() < 0.15:
            world.restart_controller(down_s=dice.choice([1.0, 100.0]))
        case 9 | 10 | 11 if placed:
            stands_still(world, dice.choice(placed), dice)
        case 12 if placed:
            job = dice.choice(placed)
            worker = dice.randrange(len(job.places))
            found = Training(world, job.id).dumps(worker, moved=dice.random() < 0.2)
            older = dice.choice([0, 0, 0, 1])
            dump = world.cluster.runtime_of(job.id).dumps - dice.choice([0, 0, 1])
            evidence = dice.choice([found, None])
            world.evidence(job.id, worker, evidence, dump=dump, generation=job.generation - older)
        case 14 if jobs and dice.random() < 0.5:
            dice.choice([world.pause, world.resume, world.resume])(dice.choice(jobs).id)
        case 15 if dice.random() < 0.3:
            one_of_the_admin_s(world, host, dice)
        case 13 if jobs and dice.random() < 0.3:
            world.hold(dice.choice(jobs).id, dice.choice([0.0, 30.0, 1e6]))
        case 7 | 8 if placed:
            job = dice.choice(placed)
            rank = dice.randrange(job.gang.rank_count)
            at = _host_of(job, rank)
            if at in world.sessions:
                generation = max(job.generation - dice.choice([0, 0, 0, 1]), 0)
                world.exit(job.id, rank, dice.choice(ENDS), generation, port_taken=dice.random() < 0.1)
        case _ if placed:
            job = dice.choice(placed)
            worker = dice.randrange(len(job.places))
            if job.places[worker].host in world.sessions:
                older = dice.choice([0, 0, 0, 0, 1])
                generation, faulty = max(job.generation - older, 0), dice.random() < 0.05
                world.report(job.id, worker, dice.choice(STATES), generation, host_fault=faulty)


def one_of_the_admin_s(world: World, host: str, dice: random.Random) -> None:
    """An admin drains, fences, cordons or gives back a host."""
    match dice.randrange(4):
        case 0:
            world.drain(host, dice.choice([None, 0.0, 30.0]), at_checkpoint=dice.random() < 0.5)
        case 1:
            world.fence(host)
        case 2:
            world.cordon(host)
        case _:
            world.uncordon(host)


def stands_still(world: World, job: Job, dice: random.Random) -> None:
    """For a while hosts tell what they see of a job: mostly nothing that moves."""
    here = all(place.host in world.sessions for place in job.places)
    if here and not job.launched and job.outcome is None and dice.random() < 0.7:
        world.run(job.id)
    program = Training(world, job.id, still_s=world.mono, step=dice.choice([None, 1.0, 2.0]))
    program.checkpoint_s = dice.choice([None, world.mono])
    program.mute = {dice.randrange(9)} if dice.random() < 0.3 else set()
    steady = 1.0 if dice.random() < 0.5 else 0.9
    for _ in range(dice.randrange(40)):
        world.wait(
            dice.choice([1.0, 5.0, 5.0, 20.0]), beating=[n for n in world.sessions if dice.random() < steady]
        )
        if dice.random() > steady:
            rank = dice.randrange(job.gang.rank_count)
            how = {"motion": dice.choice(list(Motion)), "state": dice.choice(list(State)), "mount": "/data"}
            program.changes[rank] = {**how, "traced": dice.random() < 0.1, "exit_code": dice.choice([None, 0])}
        if dice.random() < 0.1:
            index = dice.randrange(len(job.places))
            world.evidence(job.id, index, program.dumps(index), dump=world.cluster.runtime_of(job.id).dumps)
        for vector in program.vectors(Motion.WORKING if dice.random() > steady else Motion.BLOCKED):
            if vector.host in world.sessions:
                world.features(job.id, vector, generation=max(job.generation - dice.choice([0] * 9 + [1]), 0))


def _host_of(job: Job, rank: int) -> str:
    member = next(member for member in job.gang.members if rank in member.ranks)
    return job.places[member.index].host


def _at(world: World, host: str, dice: random.Random | None = None) -> list[tuple[Job, int]]:
    """Workers placed on a host, or most of them."""
    return [
        (job, index)
        for job in world.cluster.jobs.values()
        for index, place in enumerate(job.places)
        if place.host == host and (dice is None or dice.random() < 0.9)
    ]


def calm(world: World) -> None:
    """Users cancel everything, all hosts come back, and each does as it is told."""
    for number in range(HOSTS):
        world.join(
            f"host-{number}", places=[world.place(j.id, i, "RUNNING") for j, i in _at(world, f"host-{number}")]
        )
    for name in list(world.cluster.jobs):
        world.cancel(name)
    for _ in range(3):
        for job in list(world.cluster.jobs.values()):
            for index in range(len(job.places)):
                if desired(world.cluster, job, index, 60.0).phase.name == "STOP":
                    world.report(job.id, index, "EMPTY")
    for host in world.cluster.hosts.values():
        for key in quarantined(world.cluster, host.name):
            job_id, _, index_text = key.rpartition("/")
            world.report(job_id, int(index_text), "EMPTY", host=host.name)


@pytest.mark.parametrize("seed", range(60))
def test_nothing_that_hosts_and_users_say_breaks_an_invariant(seed: int) -> None:
    dice = random.Random(seed)
    world = World(HOSTS, Policies(secret_key=b"k", quotas=QUOTAS))
    for _ in range(STEPS):
        one_move(world, dice)
    calm(world)
    assert [job.id for job in world.cluster.jobs.values() if not job.terminal] == []
    assert all(not host.allocations for host in world.cluster.hosts.values())
    assert not world.cluster.runtime
    assert not world.cluster.watches
    assert not world.cluster.suspects
    assert not len(world.cluster.queue)
    assert not world.cluster.holdings.by_holder
