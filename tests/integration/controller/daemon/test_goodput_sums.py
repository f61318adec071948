"""Sums of the ledger over all jobs: each millisecond once, whatever happens while they are read."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.daemon.test_driver import running
from tests.integration.controller.store.test_ledger_rows import WANTED, story

from holdfast.v1 import cluster_pb2
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.step.step import Decision, Entry
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services import goodput


def replay_into(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the driver take events as they are, instead of deciding on them."""

    def step(event: Any, _: object) -> Decision:
        fold(driver.cluster, event)
        bookings, driver.cluster.bookings = driver.cluster.bookings, Bookings()
        return Decision((Entry(driver.cluster.sequence, event, "", ""),), (), bookings)

    monkeypatch.setattr(driver.reactor, "step", step)


@pytest.mark.parametrize("ended", [0, 1, 2, 3, 4])
async def test_a_job_that_ends_while_sums_are_read_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int
) -> None:
    """The last events come after the settled days were read, but before the jobs are looked at."""
    events, gate, reading = story(), threading.Event(), asyncio.Event()
    async with running(tmp_path / "holdfast.db") as site:
        driver, loop, days = site.driver, asyncio.get_running_loop(), goodput._days
        replay_into(driver, monkeypatch)

        def slow_days(*args: Any) -> Any:
            found = days(*args)
            loop.call_soon_threadsafe(reading.set)
            assert gate.wait(20)
            return found

        for event in events[: len(events) - ended]:
            driver.feed(event)  # type: ignore[arg-type]
        await driver.settled()
        monkeypatch.setattr(goodput, "_days", slow_days)
        request = cluster_pb2.SumGoodputRequest(by=cluster_pb2.GOODPUT_BY_HOST)
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(goodput.sum_goodput(driver, request, lambda _: True))
            await reading.wait()
            for event in events[len(events) - ended :]:
                driver.feed(event)  # type: ignore[arg-type]
            gate.set()
        sums: Counter[str] = Counter()
        for row in asked.result().rows:
            sums[row.category] += row.ms
    if ended:
        assert sums == WANTED
    assert {category: sums[category] for category in ("prepare", "launch")} == {"prepare": 32_000, "launch": 8_000}


async def test_weeks_are_those_of_the_calendar_and_owners_have_their_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "holdfast.db") as site:
        replay_into(site.driver, monkeypatch)
        for event in story():
            site.driver.feed(event)  # type: ignore[arg-type]

        async def rows(by: cluster_pb2.GoodputBy.ValueType, *, sees: bool = True) -> list[cluster_pb2.GoodputRow]:
            request = cluster_pb2.SumGoodputRequest(by=by)
            return list((await goodput.sum_goodput(site.driver, request, lambda _: sees)).rows)

        weeks = await rows(cluster_pb2.GOODPUT_BY_WEEK)
        assert {row.name for row in weeks} == {"2023-W46"}
        assert sum(row.ms for row in weeks) == sum(WANTED.values())
        assert {(row.name, row.project) for row in await rows(cluster_pb2.GOODPUT_BY_OWNER)} == {("ann", "default")}
        assert not await rows(cluster_pb2.GOODPUT_BY_WEEK, sees=False)
