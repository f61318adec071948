"""What a host's admin allows of shells: how many, how long without use, none any more. Their keepers are played."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.session.rank_shells import FORBIDDEN, Limits, RankShells
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shim.keepers import frame

JOB, WORKER, HOUR_S = "train-x7k2mq", "workerpool0-0", 3600.0


class Keepers:
    """A shim whose keepers write a greeting and then only take what is typed."""

    def __init__(self, directory: Path, tasks: asyncio.TaskGroup) -> None:
        self._directory = directory
        self.tasks = tasks
        self.open: list[asyncio.StreamWriter] = []

    def pid(self, key: WorkerId) -> int:
        return 1

    def keeps_shells(self, key: WorkerId) -> bool:
        return True

    def send(self, key: WorkerId, message: dict[str, Any]) -> None:
        self.tasks.create_task(self._connect(str(message["socket"])))

    async def _connect(self, name: str) -> None:
        # As the shim does: a socket's whole path may be too long.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)
        self.open.append(writer)
        writer.write(frame(b"o", b"$ "))

    def close(self) -> None:
        for each in self.open:
            each.transport.abort()


@pytest.fixture
async def keepers(tmp_path: Path) -> AsyncIterator[Keepers]:
    directory = tmp_path / JOB / WORKER
    directory.mkdir(parents=True)
    async with asyncio.TaskGroup() as tasks:
        made = Keepers(directory, tasks)
        yield made
        made.close()


class Host:
    """The shells of a host, and what each has ended with."""

    def __init__(self, workers: Path, keepers: Keepers, limits: Limits) -> None:
        self.shells = RankShells(workers, cast("Shims", keepers), limits)
        self._tasks = keepers.tasks
        self._last = 0

    def order(self) -> agent_pb2.OpenShell:
        self._last += 1
        return agent_pb2.OpenShell(id=self._last, job_id=JOB, worker=WORKER, generation=1)

    async def opened(self) -> asyncio.Task[agent_pb2.TransferEnd]:
        """A shell whose greeting has come."""
        greeted = asyncio.Event()

        async def passes(data: bytes, is_error: bool) -> None:
            assert (data, is_error) == (b"$ ", False)
            greeted.set()

        running = self._tasks.create_task(self.shells.run(self.order(), passes))
        async with asyncio.timeout(30):
            await greeted.wait()
        return running


async def _nothing(data: bytes, is_error: bool) -> None:
    raise AssertionError("no shell was to be opened")


async def test_no_more_are_open_than_the_admin_allows(tmp_path: Path, keepers: Keepers) -> None:
    host = Host(tmp_path, keepers, Limits(2, HOUR_S))
    first, second = await host.opened(), await host.opened()
    refused = await host.shells.run(host.order(), _nothing)
    assert refused.problem == "its host has 2 shells open already, and its admin allows no more at a time"
    keepers.open[0].write(frame(b"x", b"3"))
    assert (await first).exit_status == 3
    third = await host.opened()
    keepers.close()
    assert "ended with the ranks" in (await second).problem
    assert "ended with the ranks" in (await third).problem


async def test_one_that_nobody_uses_is_ended(tmp_path: Path, keepers: Keepers) -> None:
    host = Host(tmp_path, keepers, Limits(8, 0.3))
    running = await host.opened()
    async with asyncio.timeout(30):
        end = await running
    assert (
        end.problem
        == "nothing was typed or written for as long as its host allows (shell_idle = 0.3 s in agent.toml)"
    )
    assert (await host.shells.give(agent_pb2.GiveInput(id=9, shell=1, data=b"ls\n"))).problem == "it has ended"


async def test_what_is_typed_is_use(tmp_path: Path, keepers: Keepers) -> None:
    host = Host(tmp_path, keepers, Limits(8, 3.0))
    running = await host.opened()
    for _ in range(10):
        await asyncio.sleep(0.4)
        taken = await host.shells.give(agent_pb2.GiveInput(id=9, shell=1, data=b"#"))
        assert (taken.bytes, taken.problem) == (1, "")
    assert not running.done()
    keepers.close()
    await running


async def test_an_admin_who_allows_none_any_more_ends_those_that_are_open(tmp_path: Path, keepers: Keepers) -> None:
    host = Host(tmp_path, keepers, Limits(8, HOUR_S))
    running = await host.opened()
    host.shells.change(Limits(0, HOUR_S))
    async with asyncio.timeout(30):
        assert (await running).problem == FORBIDDEN
    refused = await host.shells.run(host.order(), _nothing)
    assert refused.problem == "its host's admin allows no shells there (shells = 0 in agent.toml)"
