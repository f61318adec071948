"""How much a pass over a long queue does where hosts are reserved."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenarios.world import World, gang

from holdfast_controller.core.model.clock import NEVER, Mono, Now, Wall
from holdfast_controller.core.model.gang import HostSelector
from holdfast_controller.core.model.hosts.reservations import Reservation
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.scheduling.placement import Plan, Wait, plan_job
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.step.reservation_commands import ReservationAsked
from holdfast_controller.core.step.step import Policies, Step


def test_a_pass_makes_no_plan_for_each_size_of_job_where_all_that_is_reserved_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(8, Policies(secret_key=b"k"))
    selector = HostSelector(hosts=frozenset({"host-0", "host-1", "host-2"}))
    world.step(ReservationAsked(1, Reservation("conf", "vision", NEVER, Wall(world.wall + 1e6), selector)))
    for number, project in enumerate(["vision"] * 2 + ["others"] * 5):
        world.submit(f"full-{number}", gang(1, project=project))
    assert {tuple(place.host for place in world.cluster.jobs[f"full-{number}"].places) for number in range(2)} < {
        (f"host-{n}",) for n in range(3)
    }
    sizes = [(workers, gpus) for workers in range(2, 8) for gpus in (1, 2, 4)]
    for number, (workers, gpus) in enumerate(reversed(sizes)):
        for project in ("others", "vision"):
            world.submit(f"{project}-{number}", gang(workers, project=project, gpus=gpus))
    waiting = len(world.cluster.queue)
    assert waiting > 30
    plans: list[str] = []

    def counted(job: Job, *more: Any) -> Plan | Wait:
        plans.append(job.id)
        return plan_job(job, *more)

    monkeypatch.setattr("holdfast_controller.core.scheduling.pass_state.plan_job", counted)
    now = Now(Mono(world.mono), Wall(world.wall))
    place_queue(Step(world.cluster, world.reactor.policies, world.reactor.timers, now))
    assert len(world.cluster.queue) == waiting
    assert len(plans) <= 2, plans
