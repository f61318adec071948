"""Hollow hosts speak as real agents do, and the rows of the scale benchmark tell the truth, on a small cluster.

Nothing is asserted of times: these are the rows' stories, once each, over gRPC with a certificate for every host.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from bench import scale_core, scale_rows
from bench.hollow.cluster import HollowCluster, hollow_cluster
from bench.hollow.figures import Figures
from bench.hollow.host import EXIT, HOLD
from bench.scale_rows import RANKS_PER_HOST, Site
from bench.support.cluster import await_end, job

from holdfast.client import Client
from holdfast.v1 import job_pb2
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.commands import RestartAsked

HOSTS = 20
RANKS = HOSTS * RANKS_PER_HOST


async def test_the_rows_tell_their_stories_and_every_end_is_recorded_once(tmp_path: Path) -> None:
    async with hollow_cluster(tmp_path, HOSTS, fleets=2) as (cluster, client):
        site = Site(cluster, client, Figures())
        names = {host.name for host in await client.list_hosts()}
        assert names == {f"hollow-{number}" for number in range(HOSTS)}
        await scale_rows.gangs(site, 1)
        await scale_rows.exits(site, 1)
        await scale_rows.restarts(site, 1)
        await scale_rows.storm(site, 1)
        await scale_rows.jobs(site, 0.5)
        await _a_rank_fails(site)
        await _a_small_job_ends(site)
        tally = await cluster.tally()
    # Every rank that was launched has ended by now, and has one record in the log.
    assert tally["launched"] == tally["ended"] == scale_rows.recorded_once(cluster.database)
    assert tally["living"] == tally["unacked"] == 0
    assert tally["notes"] == {}
    assert len(site.figures.rows) == 5


async def _a_rank_fails(site: Site) -> None:
    """The first of a gang, with code 3: all others are stopped, and the gang is relaunched in place."""
    client = site.client
    async with scale_rows.running_gang(site) as (job_id, _):
        await site.cluster.end(job_id, 3, [1, 0], rank=0)
        async with contextlib.aclosing(client.watch_job(job_id)) as events:
            async for event in events:
                if event.type == "GangStarted" and event.data["generation"] == 2:
                    break
        found = await client.get_job(job_id)
        ends = [end for worker in found.workers for end in worker.exits if end.generation == 1]
        assert len(ends) == RANKS
        assert [(end.rank, end.exit_code) for end in ends if end.exit_code] == [(0, 3)]
        assert {end.signal for end in ends if end.rank != 0} == {15}
        assert [recovery.end_reason for recovery in found.recoveries] == ["NONZERO_EXIT"]


async def _a_small_job_ends(site: Site) -> None:
    ended = await await_end(site.client, (await site.client.create_job(job([EXIT]))).id)
    assert ended.state == job_pb2.JOB_STATE_SUCCEEDED
    assert [end.exit_code for worker in ended.workers for end in worker.exits] == [0]
    held = (await site.client.create_job(job([HOLD]))).id
    await site.client.cancel_job(held)
    assert (await await_end(site.client, held)).state == job_pb2.JOB_STATE_CANCELLED


async def test_hollow_hosts_tell_of_their_ranks_what_agents_tell(tmp_path: Path) -> None:
    async with hollow_cluster(tmp_path, 3) as (cluster, client):
        async with scale_rows.running_gang(Site(cluster, client, Figures())) as (job_id, _):

            async def known(figure: str) -> set[int]:
                pages = [page async for page in client.series(job_id, figures=[figure])]
                return {one.rank for page in pages for one in page.series}

            async def steps() -> bool:
                return (await client.goodput(job_id)).level in ("A", "B")

            await _until(steps)
            await client.restart_job(job_id)  # a minute ends with its generation

            async def complete() -> bool:
                ranks = set(range(3 * RANKS_PER_HOST))
                return await known("gpu_util") == ranks and bool(await known("step"))

            await _until(complete)
            ledger = await client.goodput(job_id, verify=True)
        told = await cluster.tally()
    assert ledger.verified == ""
    assert told["minutes"] >= 3
    assert told["notes"] == {}


async def test_bare_hollow_hosts_tell_nothing_of_their_ranks(tmp_path: Path) -> None:
    async with hollow_cluster(tmp_path, 2, bare=True) as (cluster, client):
        async with scale_rows.running_gang(Site(cluster, client, Figures())) as (job_id, _):
            await client.restart_job(job_id)
            ledger = await client.goodput(job_id)
        tally = await cluster.tally()
    assert tally["features"] == tally["minutes"] == 0
    assert ledger.level == "D"


async def test_the_answer_to_an_order_that_was_given_up_is_taken_for_no_other(tmp_path: Path) -> None:
    async with hollow_cluster(tmp_path, 2) as (cluster, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await cluster.tell({"op": "tally"}, {"connected": [3]}, within_s=0.3)
        await asyncio.sleep(0.4)  # its answer is there, from before the gang
        async with scale_rows.running_gang(Site(cluster, client, Figures())):
            assert (await cluster.tally())["launched"] == 2 * RANKS_PER_HOST


async def _until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(90):
        while not await reached():  # noqa: ASYNC110
            await asyncio.sleep(0.3)


async def test_the_controllers_share_of_a_relaunch_and_its_start_are_measured(tmp_path: Path) -> None:
    figures = Figures()
    await scale_core.relaunches(tmp_path, 1, figures, sizes=(16, 64))
    await scale_core.starts(tmp_path, 30, 1, figures)
    assert len(figures.rows) == 3
    assert all(float(row[3].replace(",", "")) > 0 for row in figures.rows)


async def test_a_relaunch_is_a_step_for_each_message_of_a_host_and_an_event_for_each_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a step for each rank; a gang of 16,384 has eight on each host."""
    said: list[str] = []
    told: list[str] = []
    async with scale_core.stage(tmp_path / "holdfast.db") as on:
        for number in range(HOSTS):
            on.join(f"host-{number}")
        await scale_core.submit(on, "train", scale_core.core_gang(scale_rows.gang(HOSTS)))
        await on.until("train", JobState.RUNNING, 1)
        step, perform, first = on.driver.reactor.step, on.driver._perform, on.driver.store.sequence

        def counted_step(what: Any, now: Any) -> Any:
            said.append(type(what).__name__)
            return step(what, now)

        def counted(action: Any) -> None:
            told.append(type(action).__name__)
            perform(action)

        monkeypatch.setattr(on.driver.reactor, "step", counted_step)
        monkeypatch.setattr(on.driver, "_perform", counted)
        await on.driver.ask(lambda token: RestartAsked(token, "ann", "train"))
        await on.until("train", JobState.RUNNING, 2)
        events = on.driver.store.sequence - first
    assert Counter(said) - Counter({"TimePassed": len(said)}) == {
        "RestartAsked": 1,
        "ExitsReported": HOSTS,
        "WorkerReported": 2 * HOSTS,
    }
    assert Counter(told) == {"Reply": 1, "Assign": 2 * HOSTS, "AckExits": HOSTS}
    assert events == RANKS + len(("RestartDecided", "GangLaunched", "GangStarted"))


def test_an_end_that_is_recorded_twice_is_found(tmp_path: Path) -> None:
    database = tmp_path / "holdfast.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE events (type TEXT, entity TEXT, payload TEXT)")
        end = ("RankExited", "job/a", '{"exit": {"generation": 1, "rank": 0}}')
        connection.execute("INSERT INTO events VALUES (?, ?, ?)", end)
        connection.commit()
        assert scale_rows.recorded_once(database) == 1
        connection.execute("INSERT INTO events VALUES (?, ?, ?)", end)
        connection.commit()
    with pytest.raises(SystemExit, match="exactly once"):
        scale_rows.recorded_once(database)


def test_hollow_hosts_have_certificates_of_their_own(tmp_path: Path) -> None:
    cluster = HollowCluster(tmp_path, 2, 1, 8)
    cluster.prepare()
    assert (cluster.pki / "hollow-0.pem").read_bytes() != (cluster.pki / "hollow-1.pem").read_bytes()
    assert isinstance(cluster.client(), Client)
