"""The queue as all calls see it: projected once for all of them, and never older than the last event."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.scenarios.world import World, gang

from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.scheduling.projections import projected_start
from holdfast_controller.core.scheduling.projections.projected_start import MOST_FORECAST
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell.calls import committed_views

HOUR_S = 3600.0


def lasting(hours: float) -> Gang:
    """A worker that fills a host."""
    return gang(1, expected_s=hours * HOUR_S, max_wait_s=0.0)


def view(world: World) -> QueueView:
    return world.reactor.queue_view(Now(Mono(world.mono), Wall(world.wall)))


def why(world: World, name: str) -> str:
    seen = view(world)
    return wait_reason(world.cluster, world.cluster.jobs[name], seen.schedulable_hosts, seen)


@pytest.fixture
def world() -> World:
    """One host that is busy, and jobs that wait for it, as many as have a projected start."""
    made = World(hosts=1)
    made.submit("busy", lasting(2))
    made.run("busy")
    for number in range(MOST_FORECAST):
        made.submit(f"w{number}", lasting(1))
    return made


@pytest.fixture
def projections(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which starts were projected."""
    times: list[float] = []
    real = projected_start.forecast

    def noted(*args: object) -> object:
        times.append(args[3].mono)  # type: ignore[attr-defined]
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("holdfast_controller.core.scheduling.wait_reasons.pending_reason.forecast", noted)
    return times


def test_calls_share_one_view_until_something_happens(world: World, projections: list[float]) -> None:
    first = why(world, "w0")
    assert "expected to start" in first
    assert why(world, "w0") == first
    assert view(world) is view(world)
    assert len(projections) == 1


def test_an_event_is_seen_at_once(world: World, projections: list[float]) -> None:
    assert why(world, "w1").startswith("behind w0 in the queue")
    world.cancel("w0")
    assert not why(world, "w1").startswith("behind")
    assert len(projections) == 2


def test_projected_starts_outlast_what_happens_behind_the_jobs_that_have_one(
    world: World, projections: list[float]
) -> None:
    before = why(world, "w1")
    world.submit("last", lasting(1))
    assert why(world, "last").startswith(f"behind {MOST_FORECAST} jobs in the queue")
    assert why(world, "w1") == before
    assert len(projections) == 1


def test_a_job_behind_those_that_have_a_projected_start_asks_for_none(
    world: World, projections: list[float]
) -> None:
    world.submit("last", lasting(1))
    assert why(world, "last").startswith(f"behind {MOST_FORECAST} jobs in the queue")
    assert projections == []
    world.cancel("w0")
    assert "expected to start" in why(world, "last")
    assert len(projections) == 1


def test_who_needs_no_start_has_none_projected(world: World, projections: list[float]) -> None:
    seen = world.reactor.queue_view(Now(Mono(world.mono), Wall(world.wall)), projected=False)
    said = wait_reason(world.cluster, world.cluster.jobs["w1"], seen.schedulable_hosts, seen)
    assert said.startswith("behind w0 in the queue") and "expected" not in said
    assert projections == []
    assert why(world, "w1").startswith(f"{said}; expected to start")


def test_what_changes_without_an_event_is_seen_within_a_second(world: World, projections: list[float]) -> None:
    why(world, "w0")
    world.mono, waited = world.mono + 0.6, len(world.log)
    world.submit("last", lasting(1))  # does not prolong what was projected
    why(world, "w0")
    world.mono += 0.6
    assert len(world.log) > waited
    why(world, "w0")
    assert len(projections) == 2


def test_other_policies_are_seen_at_once(world: World) -> None:
    before = view(world)
    world.step(st.PoliciesChanged(dataclasses.replace(world.policies, loan_s=1.0)))
    assert view(world).loan_s == 1.0 != before.loan_s


def test_the_page_of_a_job_that_does_not_wait_looks_at_no_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        committed_views, "job_to_proto", lambda cluster, job, *_, **__: job_pb2.CustomJob(id=job.id)
    )
    asked: list[object] = []

    def queue_view(at: Now, *, projected: bool) -> QueueView:
        asked.append(at)
        return world.reactor.queue_view(at, projected=projected)

    async def settled() -> None: ...

    async def bring(names: Sequence[str]) -> None: ...

    driver: Any = SimpleNamespace(
        cluster=world.cluster, reactor=SimpleNamespace(queue_view=queue_view), settled=settled, bring=bring
    )
    committed_views.know_spec(world.cluster.jobs["busy"].spec_json, spec_pb2.CustomJobSpec())
    assert asyncio.run(committed_views.committed_job(driver, "busy", "ann")).id == "busy"
    assert not asked
    assert asyncio.run(committed_views.committed_job(driver, "w0", "ann")).id == "w0"
    assert len(asked) == 1
