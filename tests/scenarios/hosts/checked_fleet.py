"""A fleet whose idle hosts are measured: what checks find there, and moves that many stories share."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.scenarios.world import World

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.hosts.measurements import HostChecks
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies

CHECKS = HostChecks(on=True, program="measure()")
ON = Policies(secret_key=b"k", host_checks=CHECKS)
OFF = replace(ON, host_checks=replace(CHECKS, on=False))
WELL = {"cpu.hash": 500.0, "memory.copy": 10.0, "gpu.matmul": 700.0}
NET = {"net.all_reduce": 40.0}


def fleet(hosts: int) -> World:
    """Hosts of a controller with the setting."""
    world = World(hosts, OFF)
    world.policies = ON
    world.step(st.PoliciesChanged(ON))
    return world


def ask(world: World, host: str, *, at_once: bool = False) -> list[str]:
    return world.step(st.HostCheckAsked(900, "ann", host, at_once))


def checks(world: World) -> list[Job]:
    """Those that go on, in the order of their beginning."""
    return [world.cluster.jobs[name] for name in sorted(world.cluster.measuring, key=lambda n: (len(n), n))]


def said(figures: dict[str, float], *problems: str) -> tuple[str, ...]:
    return ("a warning", json.dumps({"holdfast_check": 1, "figures": figures, "problems": problems}))


def beat(world: World, seconds: float) -> list[str]:
    return world.wait(seconds, beating=list(world.sessions))


def finish(world: World, job: Job, figures: dict[str, dict[str, float]]) -> list[str]:
    """The job runs, and says these figures of its hosts."""
    world.run(job.id)
    told: list[str] = []
    for member in job.gang.members:
        for rank in member.ranks:
            told += world.exit(job.id, rank, said=said(figures[job.places[member.index].host]))
    for index in range(len(job.places)):
        told += world.report(job.id, index, "EMPTY")
    for place in job.places:
        if job.id in world.cluster.output_on.get(place.host, ()):
            told += world.output_gone(job.id, place.host)
    return told


def measure_all(
    world: World, slow: dict[str, dict[str, float]] | None = None, *, most: int = 100
) -> list[ev.HostMeasured]:
    """Let checks be made until none is due; hosts have what is usual, but for ``slow``. What was measured."""
    slow = slow or {}
    first = len(world.log)
    for _ in range(most):
        beat(world, 35)
        if not checks(world):
            break
        for job in checks(world):
            pair = len(job.places) > 1
            names = job.hosts
            figures = {name: WELL | slow.get(name, {}) for name in names}
            if pair:
                worst = min(slow.get(name, {}).get("net.all_reduce", NET["net.all_reduce"]) for name in names)
                figures = {name: {"net.all_reduce": worst} for name in names}
            finish(world, job, figures)
    else:
        raise AssertionError("checks go on for ever")
    return [event for event in world.log[first:] if isinstance(event, ev.HostMeasured)]
