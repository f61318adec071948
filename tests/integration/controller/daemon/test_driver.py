"""The driver: durable before anything is told, in order, and never on after a failure."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.cluster import WITHIN_S
from tests.integration.controller.daemon.driven import Running, hello, idle, running, submission

from holdfast.errors import NotFound, StoreError, Unavailable
from holdfast_controller.core.step import commands as st
from holdfast_controller.shell import driver as driver_module
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.slices import TURNS, at_once
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.main.server import serve
from holdfast_controller.shell.store.databases.engine import Deposed
from holdfast_controller.shell.store.records import Record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
async def world(path: Path) -> AsyncIterator[Running]:
    async with running(path) as found:
        yield found


async def test_nothing_is_told_before_it_is_durable(world: Running) -> None:
    told: list[Any] = []
    world.driver.register("h", 1, told.append)
    bell = world.driver.watch("host/h")
    world.store.gate.clear()
    world.driver.feed(hello())
    asked = asyncio.gather(world.driver.ask(submission("a")))
    await asyncio.to_thread(world.store.committing.wait, 20)
    await idle()
    assert told == []
    assert not bell.is_set()
    assert not asked.done()
    world.store.gate.set()
    assert list(await asked) == ["a"]
    assert bell.is_set()
    assert [type(action).__name__ for action in told] == ["Welcome", "Assign"]
    assert told[1].assignment.key.job == "a"


async def test_jobs_are_logged_at_debug_and_hosts_at_info(world: Running, caplog: pytest.LogCaptureFixture) -> None:
    def logged() -> list[str]:
        return [
            vars(record)["fields"]["entity"]
            for record in caplog.records
            if record.getMessage() == "event.committed"
        ]

    caplog.set_level("INFO")
    world.driver.feed(hello())
    await world.driver.ask(submission("a"))
    assert logged() == ["host/h"]
    caplog.set_level("DEBUG")
    await world.driver.ask(submission("b"))
    assert "job/b" in logged()


async def test_what_waits_is_committed_together_and_in_order(world: Running) -> None:
    world.store.gate.clear()
    world.driver.feed(hello())
    await asyncio.to_thread(world.store.committing.wait, 20)
    asked = asyncio.gather(*(world.driver.ask(submission(name)) for name in "abc"))
    await idle()
    world.store.gate.set()
    assert await asked == ["a", "b", "c"]
    assert world.store.batches == [["HostJoined"], ["JobSubmitted", "JobPlaced"] * 3]
    sequences = [r.sequence for name in "abc" for r in await world.driver.history(f"job/{name}", 0, 10)]
    assert sequences == [2, 3, 4, 5, 6, 7]


async def test_settled_waits_for_what_was_seen_and_no_more(world: Running) -> None:
    world.store.gate.clear()
    world.driver.feed(hello())
    waiting = asyncio.gather(world.driver.settled())
    await asyncio.to_thread(world.store.committing.wait, 20)
    await idle()
    assert not waiting.done()
    world.store.committing.clear()
    world.store.gate.set()
    await waiting
    await world.driver.settled()


async def test_settled_returns_under_a_load_that_never_ends(
    world: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = world.store.commit

    def slow(*args: Any) -> None:
        time.sleep(0.02)
        commit(*args)

    monkeypatch.setattr(world.store, "commit", slow)
    world.driver.feed(hello())
    number = 0
    stop = asyncio.Event()

    async def load() -> None:
        nonlocal number
        while not stop.is_set():
            number += 1
            world.driver.feed(st.CordonAsked(0, "ann", "h", str(number)))
            # Many for each commit, so that something always waits; but not so many that the store's thread starves.
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        await idle()
        async with asyncio.timeout(60):
            for _ in range(5):
                await world.driver.settled()
        stop.set()
    assert number > 5


async def test_refusal_is_raised_in_the_caller(world: Running) -> None:
    with pytest.raises(NotFound, match="no job 'nope'"):
        await world.driver.ask(lambda token: st.CancelAsked(token, "ann", "nope"))


async def test_caller_that_leaves_does_not_undo_its_wish(world: Running) -> None:
    world.store.gate.clear()
    world.driver.feed(hello())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await world.driver.ask(submission("a"))
    world.store.gate.set()
    await world.driver.settled()
    assert [r.type for r in await world.driver.history("job/a", 0, 10)] == ["JobSubmitted", "JobPlaced"]
    assert await world.driver.ask(submission("b")) == "b"


async def test_too_many_decisions_waiting_for_the_disk_refuse_calls(
    world: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "MAX_PENDING", 2)
    world.store.gate.clear()
    world.driver.feed(hello())
    await asyncio.to_thread(world.store.committing.wait, 20)
    for reason in ("1", "2"):
        world.driver.feed(st.CordonAsked(0, "ann", "h", reason))
    with pytest.raises(Unavailable, match="disk is too slow"):
        await world.driver.ask(submission("a"))


async def test_messages_of_a_session_that_is_over_go_nowhere(world: Running) -> None:
    told: list[Any] = []
    world.driver.register("h", 1, told.append)
    world.driver.unregister("h", 1)
    world.driver.feed(hello())
    await world.driver.settled()
    assert told == []


async def test_failed_commit_ends_the_writer_and_tells_nothing(path: Path) -> None:
    told: list[Any] = []

    async def story() -> None:
        async with running(path) as world:
            world.driver.register("h", 1, told.append)
            world.store.failure = StoreError("the disk is full")
            world.driver.feed(hello())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as failure:
        await story()
    assert failure.group_contains(StoreError, match="disk is full")
    assert told == []


async def test_step_that_fails_ends_the_writer_before_anything_of_it_is_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(_: object) -> None:
        raise ZeroDivisionError("a defect of ours, after the first event was folded in")

    async def story() -> None:
        async with running(path) as world:
            world.driver.feed(hello())
            await world.driver.settled()
            monkeypatch.setattr("holdfast_controller.core.scheduling.submit.place_queue", defect)
            with pytest.raises(ZeroDivisionError):
                await world.driver.ask(submission("a"))
            assert "a" in world.driver.cluster.jobs
            with pytest.raises(Unavailable):
                world.driver.feed(hello(2))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as failure:
        await story()
    assert failure.group_contains(RuntimeError, match="a step failed")
    async with running(path) as world:
        assert world.driver.cluster.jobs == {}
        assert world.driver.cluster.sequence == 1


def test_record_fields_are_those_of_the_table() -> None:
    from holdfast_controller.shell.store.schema import events

    assert [column.name for column in events.columns] == [*Record.__slots__, "checksum"]


async def test_a_heartbeat_is_answered_only_by_a_commit_that_began_after_it(world: Running) -> None:
    world.store.gate.clear()
    world.driver.feed(hello())
    await asyncio.to_thread(world.store.committing.wait, 20)
    world.store.committing.clear()
    waiting = asyncio.gather(world.driver.confirmed())
    world.store.gate.set()
    await asyncio.to_thread(world.store.committing.wait, 20)
    await waiting
    assert world.store.batches == [["HostJoined"], []]


async def test_heartbeats_that_wait_share_one_write(world: Running) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(world.driver.confirmed())
    assert world.store.batches == [[]]


async def test_a_question_waits_for_a_commit_that_began_after_it_where_others_may_lead(world: Running) -> None:
    await world.driver.still_leading()  # a file has one controller
    world.store.engine.shared = True
    world.store.gate.clear()
    world.driver.feed(hello())
    await asyncio.to_thread(world.store.committing.wait, 20)
    asked = asyncio.gather(*(world.driver.still_leading() for _ in range(3)))
    await idle()
    assert not asked.done() and len(world.driver._unconfirmed) == 1, "nothing piles up while the database is slow"
    world.store.gate.set()
    await asked
    assert world.store.batches == [["HostJoined"], []]


async def test_answers_that_wait_for_a_disk_that_stands_still_are_bounded(
    world: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "MAX_UNCONFIRMED", 3)
    world.store.gate.clear()
    world.driver.feed(hello())
    await asyncio.to_thread(world.store.committing.wait, 20)
    answered: list[int] = []
    for number in range(5):
        world.driver.when_confirmed(functools.partial(answered.append, number))
    others = asyncio.gather(*(asyncio.wait_for(world.driver.confirmed(), 30) for _ in range(2)))
    await idle()
    world.store.gate.set()
    await others
    assert answered == [0, 1, 2]


async def test_what_needs_no_event_leaves_only_from_the_controller_that_leads(path: Path) -> None:
    told: list[Any] = []

    async def greet_after_another_took_over() -> None:
        async with running(path) as world:
            world.driver.feed(hello())
            await world.driver.settled()
            world.driver.register("h", 2, told.append)
            world.store.epoch -= 1
            assert world.driver.feed(hello(2)) == []
            await world.driver.confirmed()

    with pytest.raises(ExceptionGroup) as stopped:
        await greet_after_another_took_over()
    assert stopped.value.subgroup(Deposed)
    assert told == []


async def test_readers_of_the_page_wait_for_commits_while_a_controller_is_there(config: ControllerConfig) -> None:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(config, ready.set_result))
        async with asyncio.timeout(WITHIN_S):
            await ready
        assert getattr(TURNS.between_commits, "__func__", None) is Driver.settled
        serving.cancel()
    assert TURNS.between_commits is at_once
