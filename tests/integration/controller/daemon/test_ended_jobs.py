"""Ended jobs that the driver has let go: whoever asks for one waits for the disk, and the event loop doesn't."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from tests.integration.controller.daemon.driven import Running, idle, running, submission

from holdfast.errors import NotFound
from holdfast_controller.core.model import jobs as jobs_module
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.jobs import JobHead
from holdfast_controller.core.step import commands as st


@pytest.fixture(autouse=True)
def _none_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "KEPT_WHOLE", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def let_go(world: Running, name: str) -> None:
    """The next snapshot has it, and memory hasn't."""
    world.driver.snapshot_soon()
    for _ in range(1000):
        if isinstance(world.driver.cluster.jobs.head(name), JobHead):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it stays")


async def cancelled(world: Running, name: str) -> None:
    await world.driver.ask(submission(name))
    await world.driver.ask(lambda token: st.CancelAsked(token, "ann", name))
    await let_go(world, name)


async def test_a_job_is_let_go_once_a_snapshot_has_it_and_read_for_whoever_asks(path: Path) -> None:
    async with running(path) as world:
        await cancelled(world, "a")
        await world.driver.ask(submission("b"))
        await world.driver.bring(("a", "b", "nobody"))
        assert world.driver.cluster.jobs.whole.keys() == {"a", "b"}
        assert world.driver.cluster.jobs["a"].state is JobState.CANCELLED


async def test_a_call_about_an_ended_job_waits_for_a_frozen_disk_and_the_loop_goes_on(path: Path) -> None:
    async with running(path) as world:
        await cancelled(world, "a")
        thaw = threading.Event()
        frozen = world.store.call(thaw.wait, 20)
        asked = asyncio.gather(world.driver.ask(lambda token: st.DeleteAsked(token, "ann", "a")))
        await idle()
        assert not asked.done() and not frozen.done()
        assert isinstance(world.driver.cluster.jobs.head("a"), JobHead), "nothing was stepped"
        thaw.set()
        assert list(await asked) == ["a"]
        assert "a" in world.driver.cluster.purged


async def test_two_calls_about_the_same_ended_job_act_on_one_object(path: Path) -> None:
    async with running(path) as world:
        await cancelled(world, "a")
        asked = [world.driver.ask(lambda token: st.DeleteAsked(token, "ann", "a")) for _ in range(2)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert done[0] == "a" and isinstance(done[1], NotFound)


async def test_a_job_that_changes_after_it_was_read_is_so_after_a_restart(path: Path) -> None:
    async with running(path) as world:
        await cancelled(world, "a")
        world.driver.feed(st.NotificationFailed("a", "FAILED", "mail", "no route"))
        before = world.driver.cluster.jobs["a"].cursor
        await let_go(world, "a")
    async with running(path) as world:
        head = world.driver.cluster.jobs.head("a")
        assert isinstance(head, JobHead) and head.cursor == before
        assert world.driver.cluster.jobs["a"].cursor == before
