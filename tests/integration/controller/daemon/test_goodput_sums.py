"""Sums of the ledger over all jobs: each millisecond once, whatever happens while they are read."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.controller.daemon.driven import running
from tests.integration.controller.store.test_host_rows import story as failing_host
from tests.integration.controller.store.test_ledger_rows import WANTED, story

from holdfast.v1 import cluster_pb2, host_pb2
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.goodput import Bookings
from holdfast_controller.core.step.step import Decision, Entry
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services import goodput, reliability


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


async def test_hosts_have_their_failures_in_the_days_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store has and what is open add up; the record of a host that is gone counts for no one's page."""
    begun, day = 20_000 * 86_400.0, 86_400.0
    monkeypatch.setattr(reliability, "now", lambda: Now(Mono(0.0), Wall(begun + 4 * day)))
    async with running(tmp_path / "holdfast.db") as site:
        replay_into(site.driver, monkeypatch)
        for event in failing_host()[:-1]:
            site.driver.feed(event)  # type: ignore[arg-type]

        async def ask(*days: int) -> host_pb2.Reliability:
            request = cluster_pb2.SumGoodputRequest(by=cluster_pb2.GOODPUT_BY_HOST)
            for field, number in zip((request.since, request.until), days, strict=False):
                field.FromSeconds(int(begun + number * day))
            [host] = (await goodput.sum_goodput(site.driver, request, lambda _: True)).hosts
            assert host.name == "h1"
            return host.reliability

        whole = await ask()
        assert (whole.failures, dict(whole.kinds), whole.repairs) == (2, {"lost": 1, "rebooted": 1}, 1)
        assert whole.in_service.seconds == 4 * day - 3_600
        assert whole.mtbf.seconds == (4 * day - 3_600) / 2
        assert whole.mttr.seconds == 3_600
        assert whole.mtbf_low.seconds < whole.mtbf.seconds < whole.mtbf_high.seconds
        windows = [await ask(number, number + 1) for number in range(4)]
        assert [window.failures for window in windows] == [0, 1, 1, 0]
        assert sum(window.in_service.seconds for window in windows) == whole.in_service.seconds
        assert not windows[0].HasField("mtbf") and windows[0].HasField("mtbf_low")
        assert not any(window.lemon for window in windows)


async def test_thousands_of_projects_are_summed_exactly_and_more_rows_than_an_answer_holds_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three owners in each of 2,000 projects over 30 days: whatever they are added up by, the sum is the same."""
    first, projects, owners, days = 20_000, 2_000, 3, 30
    rows = [
        (f"p{p}", f"o{o}", "H100", False, category, "job", first + (p + o) % days, 1_000 + p)
        for p in range(projects)
        for o in range(owners)
        for category in ("train", "ran")
    ]
    total = sum(row[-1] for row in rows)

    def fill(database: sa.Connection) -> None:
        connection = database.connection.driver_connection
        assert connection is not None
        names = "project, owner, model, ranks, category, payer, day, ms"
        connection.executemany(f"INSERT INTO owner_days ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    async with running(tmp_path / "holdfast.db") as site:
        await asyncio.wrap_future(site.driver.store.call(site.driver.store.transaction, fill))

        async def ask(
            by: cluster_pb2.GoodputBy.ValueType, since: int = 0, until: int = days
        ) -> cluster_pb2.SumGoodputResponse:
            request = cluster_pb2.SumGoodputRequest(by=by)
            request.since.FromSeconds((first + since) * 86_400)
            request.until.FromSeconds((first + until) * 86_400)
            return await goodput.sum_goodput(site.driver, request, lambda project: project != "p7")

        seen = total - sum(row[-1] for row in rows if row[0] == "p7")
        for by in (
            cluster_pb2.GOODPUT_BY_PROJECT,
            cluster_pb2.GOODPUT_BY_OWNER,
            cluster_pb2.GOODPUT_BY_MODEL,
            cluster_pb2.GOODPUT_BY_WEEK,
        ):
            found = await ask(by)
            assert (sum(row.ms for row in found.rows), found.truncated) == (seen, False)
        pages = [await ask(cluster_pb2.GOODPUT_BY_OWNER, number, number + 5) for number in range(0, days, 5)]
        assert sum(row.ms for page in pages for row in page.rows) == seen
        monkeypatch.setattr(goodput, "MOST_ROWS", 100)
        most = await ask(cluster_pb2.GOODPUT_BY_OWNER)
        assert most.truncated
        assert [row.ms for row in most.rows] == sorted((row[-1] for row in rows), reverse=True)[:100]
