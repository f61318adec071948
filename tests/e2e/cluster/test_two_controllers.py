"""Two controllers on one database: when the one that leads ends, clients, agents and ranks go on with the other."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_cluster import until
from tests.support import postgres
from tests.support.two_controllers import TwoControllers, two_controllers

from holdfast import settings
from holdfast._sdk.reconnect import is_away
from holdfast.client import TERMINAL, Client
from holdfast.errors import HoldfastError
from holdfast.v1 import job_pb2, spec_pb2

pytestmark = pytest.mark.require("postgres")
WITHIN_S = 90
LEFT_WITHIN_S = 45


@pytest.fixture
def both(tmp_path: Path) -> Iterator[TwoControllers]:
    with postgres.running() as server:
        server.sql("CREATE DATABASE holdfast")
        url = f"postgresql://holdfast@/holdfast?host={server.folder}"
        with two_controllers(tmp_path / "c", url) as made:
            made.start("host-0")
            yield made


async def submitted(client: Client, *command: str) -> str:
    """Submit a job, again while no controller is there; its id."""
    process = spec_pb2.ProcessSpec(command=command)
    pool = spec_pb2.WorkerPoolSpec(replica_count=1, process_spec=process)
    wanted = job_pb2.CustomJob(display_name="two", job_spec=spec_pb2.CustomJobSpec(worker_pool_specs=[pool]))
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                return (await client.create_job(wanted)).id
            except HoldfastError as error:
                if not is_away(error):
                    raise
            await asyncio.sleep(0.1)


async def ends(client: Client, job_id: str) -> int:
    async with asyncio.timeout(WITHIN_S):
        async for _ in client.watch_job(job_id):
            pass
        return (await client.get_job(job_id)).state


@contextlib.asynccontextmanager
async def at_work(both: TwoControllers, directory: Path) -> AsyncGenerator[tuple[Client, str, Path]]:
    """A client, and the id of a job whose one rank runs until the file is there; it ends well, and was started once."""
    starts, over = directory / "starts", directory / "over"
    async with Client(settings.load(both.directory / "client.toml")) as client:
        job_id = await submitted(
            client, "sh", "-c", f"echo . >> {starts}; while [ ! -e {over} ]; do sleep 0.1; done"
        )
        await asyncio.to_thread(until, starts.exists, WITHIN_S)
        yield client, job_id, over
        assert await ends(client, job_id) == job_pb2.JOB_STATE_SUCCEEDED
    assert starts.read_text() == ".\n"


async def test_a_killed_controller_is_replaced_and_the_rank_and_who_watches_it_do_not_notice(
    both: TwoControllers, tmp_path: Path
) -> None:
    async with at_work(both, tmp_path) as (client, job_id, over):
        outages: list[HoldfastError | None] = []
        cursors: list[int] = []

        async def watch() -> None:
            async for answer in client.watch_job(job_id, on_link=outages.append):
                cursors.append(answer.cursor)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch())
            await asyncio.to_thread(until, lambda: bool(cursors), WITHIN_S)
            for leader, standby, end in (("one", "two", signal.SIGKILL), ("two", "one", signal.SIGTERM)):
                begun, stood_by = both.said(standby, "controller.ready"), both.said(leader, "controller.stands_by")
                both.daemons[leader].send_signal(end)
                await asyncio.to_thread(both.says, standby, "controller.ready", begun + 1)
                assert await ends(client, await submitted(client, "true")) == job_pb2.JOB_STATE_SUCCEEDED
                await asyncio.to_thread(both.daemons[leader].wait)
                both.start(leader)
                await asyncio.to_thread(both.says, leader, "controller.stands_by", stood_by + 1)
            assert (await client.get_job(job_id)).state not in TERMINAL
            over.touch()
        assert None in outages and cursors == sorted(set(cursors))


async def test_a_frozen_controller_is_left_by_hosts_and_watchers_while_it_still_stands(
    both: TwoControllers, tmp_path: Path
) -> None:
    async with at_work(both, tmp_path) as (client, job_id, over):
        # It never wakes up while they wait: gRPC by itself would give it a minute, which is more than is given here.
        async with asyncio.timeout(LEFT_WITHIN_S), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(ends(client, job_id))
            await asyncio.sleep(0.5)
            both.daemons["one"].send_signal(signal.SIGSTOP)
            await asyncio.to_thread(both.says, "two", "controller.ready")
            await asyncio.to_thread(both.says, "host-0", "session.opened", 2)
            over.touch()
            assert await watching == job_pb2.JOB_STATE_SUCCEEDED
        both.daemons["one"].send_signal(signal.SIGCONT)
        assert await asyncio.to_thread(both.daemons["one"].wait, WITHIN_S) != 0
        assert "Another controller has taken over" in both.log("one")


def test_a_takeover_loads_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with postgres.running() as server:
        server.sql("CREATE DATABASE holdfast")
        with two_controllers(tmp_path / "c", f"postgresql://holdfast@/holdfast?host={server.folder}") as both:
            until(lambda: "| stringprep" in both.log("two"), WITHIN_S)  # within the last of what a standby loads
            before = both.log("two")
            both.daemons["one"].kill()
            both.says("two", "controller.ready")
    since = both.log("two").removeprefix(before).partition("controller.ready")[0]
    assert [line for line in since.splitlines() if line.startswith("import time:")] == []
