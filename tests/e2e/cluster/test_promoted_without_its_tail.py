"""A replica takes over without the newest commits: jobs are reconciled with their hosts, and nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import until
from tests.e2e.cluster.test_two_controllers import WITHIN_S, ends, submitted
from tests.support import postgres
from tests.support.postgres import Server
from tests.support.two_controllers import TwoControllers, two_controllers

from holdfast import settings
from holdfast._sdk.reconnect import is_away
from holdfast.client import Client
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2

pytestmark = pytest.mark.require("postgres")


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    with postgres.with_replica() as made:
        made[0].sql("CREATE DATABASE holdfast")
        yield made


@pytest.fixture
def both(servers: tuple[Server, Server], tmp_path: Path) -> Iterator[TwoControllers]:
    with two_controllers(tmp_path / "c", servers[0].url("holdfast")) as made:
        made.start("host-0")
        try:
            yield made
        finally:
            (tmp_path / "over").touch()  # ranks outlive whatever fails


async def state_of(client: Client, job_id: str) -> int:
    """A job's state, asked again while no controller leads."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return (await client.get_job(job_id)).state
            except HoldfastError as error:
                if not is_away(error):
                    raise
            await asyncio.sleep(0.2)


async def test_a_promotion_without_the_newest_commits_starts_nothing_twice(
    servers: tuple[Server, Server], both: TwoControllers, tmp_path: Path
) -> None:
    primary, replica = servers
    over = tmp_path / "over"

    def waits(name: str) -> tuple[str, ...]:
        return "sh", "-c", f"echo . >> {tmp_path / name}; while [ ! -e {over} ]; do sleep 0.1; done"

    async with Client(settings.load(both.directory / "client.toml")) as client:
        known = await submitted(client, *waits("known"))
        await asyncio.to_thread(until, (tmp_path / "known").exists, WITHIN_S)
        assert "No replica is synchronous" in (await client.status()).leadership.risk
        await asyncio.to_thread(primary.caught_up, replica)
        await asyncio.to_thread(replica.stop)
        await submitted(client, *waits("forgotten"))
        await asyncio.to_thread(until, (tmp_path / "forgotten").exists, WITHIN_S)
        await asyncio.to_thread(primary.stop, "immediate")
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(replica.promote)
        # The one that led finds its last commits gone and ends, unless the other one was faster.
        await asyncio.to_thread(until, lambda: both.daemons["one"].poll() is not None, WITHIN_S)
        await asyncio.to_thread(both.says, "two", "controller.ready")
        assert both.said("two", "store.set_back") == 1
        both.start("one")
        assert await state_of(client, known) == job_pb2.JOB_STATE_RUNNING
        again = await submitted(client, "true")  # the cluster takes work
        over.touch()
        assert await ends(client, known) == job_pb2.JOB_STATE_SUCCEEDED
        assert await ends(client, again) == job_pb2.JOB_STATE_SUCCEEDED
    # The host is told to forget what has ended, of the job that nobody knows any more as well.
    records = both.directory / "hosts/host-0/state/workers"
    await asyncio.to_thread(until, lambda: not list(records.glob("*/*/*")), WITHIN_S)
    assert [(tmp_path / name).read_text() for name in ("known", "forgotten")] == [".\n", ".\n"]
