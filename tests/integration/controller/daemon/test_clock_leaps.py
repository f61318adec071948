"""A wall clock that is set beneath a running controller: what it finds in its store afterwards is as it left it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.controller.daemon.driven import Running, hello, running, submission

from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.shell import driver as driver_module

DAY_S = 86_400.0


async def in_snapshot(world: Running) -> None:
    """All that has happened is in a snapshot."""
    world.driver.snapshot_soon()
    for _ in range(2000):
        if world.store.snapshot_sequence == world.driver.cluster.sequence:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("no snapshot")


@pytest.mark.parametrize("after_snapshot", [False, True], ids=["in the snapshot", "after it"])
async def test_what_leaps_along_is_in_the_next_snapshot_though_no_event_is_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_snapshot: bool
) -> None:
    path, now = tmp_path / "holdfast.db", driver_module.now
    async with running(path) as world:
        world.driver.feed(hello())
        await world.driver.ask(submission("a"))
        placed = world.driver.cluster.jobs["a"].placement.since
        await in_snapshot(world)
    async with running(path) as world:
        monkeypatch.setattr(driver_module, "now", lambda: Now(now().mono, Wall(now().wall + DAY_S)))
        world.driver.feed(hello(2))
        if not after_snapshot:
            await in_snapshot(world)
        await world.driver.settled()
        found = world.driver.cluster.jobs["a"].placement.since
    assert found - placed == pytest.approx(DAY_S, abs=1.0)
    async with running(path) as world:
        assert world.driver.cluster.jobs["a"].placement.since == found
