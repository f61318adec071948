"""Snapshots of the driver: soon enough for a quick start, and no more often than they are worth it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.daemon.driven import GANG, hello, running, submission

from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell import driver as driver_module
from holdfast_controller.shell.store import snapshots


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def test_snapshots_lose_nothing_across_restarts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not what only the tail of the log held when the controller started."""
    monkeypatch.setattr(snapshots, "EVERY", 7)
    states: list[Any] = []
    for round_ in range(6):
        async with running(path) as world:
            cluster = world.driver.cluster
            if states:
                assert (cluster.sequence, cluster.jobs, cluster.hosts, cluster.queue, cluster.requests) == states[
                    -1
                ]
            world.driver.feed(hello())
            for number in range(2):
                await world.driver.ask(submission(f"job-{round_}-{number}"))
            await world.driver.settled()
            states.append((cluster.sequence, cluster.jobs, cluster.hosts, cluster.queue, cluster.requests))
    assert world.store.snapshot_sequence > 7


async def test_snapshots_are_taken_under_a_load_that_never_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVERY", 10)
    async with running(path) as world:
        world.driver.feed(hello())
        for number in range(200):
            world.driver.feed(st.CordonAsked(0, "ann", "h", str(number)))
            if number % 5 == 0:
                await asyncio.sleep(0.001)
        await world.driver.settled()
        await world.driver.ask(submission("a"))
        cluster = world.driver.cluster
    async with running(path) as world:
        assert 0 < world.store.snapshot_sequence <= cluster.sequence
        assert (world.driver.cluster.jobs, world.driver.cluster.hosts) == (cluster.jobs, cluster.hosts)


async def test_many_changed_jobs_are_written_before_so_many_events(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ENTITIES", 5)
    async with running(path) as world:
        for number in range(8):
            await world.driver.ask(submission(f"job-{number}"))
        await world.driver.settled()
    async with running(path) as world:
        assert 0 < world.store.snapshot_sequence <= world.driver.cluster.sequence < snapshots.EVERY
        assert len(world.driver.cluster.jobs) == 8


async def test_after_a_large_snapshot_the_next_one_waits_for_as_many_more_events(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is written whole: of a large gang, whose ends are thousands of events, that is most of a relaunch."""
    monkeypatch.setattr(snapshots, "EVERY", 10)
    taken: list[int] = []
    async with running(path) as world:
        write = world.store.snapshot

        def noted(at: int, entities: Any, heads: Any) -> None:
            write(at, entities, heads)
            taken.append(at)

        monkeypatch.setattr(world.store, "snapshot", noted)
        large = JobPlan("a", GANG, "{}" + " " * 60 * snapshots.BYTES_AN_EVENT)
        await world.driver.ask(lambda token: st.JobSubmission(token, "ann", "", "a", large))
        world.driver.feed(hello())
        for number in range(90):
            world.driver.feed(st.CordonAsked(0, "ann", "h", str(number)))
            await world.driver.settled()
    first, second, third, *_ = taken
    assert first < 20 and second > first + 60 and third < second + 20, "only after the large one"
    async with running(path) as world:
        assert world.store.snapshot_sequence == taken[-1]
        assert world.driver.cluster.hosts["h"].cordon_reason == "89"


async def test_a_snapshot_comes_after_a_burst_and_not_between_its_commits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVERY", 50)
    monkeypatch.setattr(snapshots, "BURST", 20)
    async with running(path) as world:
        world.driver.feed(hello())
        await world.driver.settled()

        async def cordons(count: int) -> int:
            for number in range(count):
                world.driver.feed(st.CordonAsked(0, "ann", "h", str(number)))
            await world.driver.settled()
            await asyncio.wrap_future(
                world.store.call(lambda: None)
            )  # a snapshot is written right after its commit
            return world.store.snapshot_sequence

        monkeypatch.setattr(driver_module, "AFTER_BURST_S", 1000.0)
        assert [await cordons(60), await cordons(60)] == [0, 0], "each a commit of a burst"
        after = await cordons(1)
        assert after > 120
        longer = await cordons(300)
        assert longer > after, "a burst that is too long is no reason to wait"

        monkeypatch.setattr(driver_module, "AFTER_BURST_S", 0.01)
        await cordons(60)
        for _ in range(3000):
            if world.store.snapshot_sequence > longer:
                break
            await asyncio.sleep(0.01)
        assert world.store.snapshot_sequence == world.driver.cluster.sequence
