"""A driver over a store on disk that can be made to wait, or to fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.store.store import Store

GANG = Gang((Pool(1, Task(("x",))),))


class HeldStore(Store):
    """A store whose disk can be made to wait, or to fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate, self.committing = threading.Event(), threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.failure: Exception | None = None

    def commit(self, records: Any, kept: Any = (), bookings: Any = ()) -> None:
        self.committing.set()
        assert self.gate.wait(20)
        if self.failure is not None:
            raise self.failure
        super().commit(records, kept, bookings)
        self.batches.append([record.type for record in records])


@dataclass
class Running:
    driver: Driver
    store: HeldStore
    writer: asyncio.Task[None]


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[Running]:
    store = HeldStore(path)
    cluster: Cluster = await asyncio.wrap_future(store.call(store.open))
    driver = Driver(store, cluster, Policies(secret_key=b"k"))
    driver.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(driver.run())
            try:
                async with asyncio.timeout(30):
                    yield Running(driver, store, writer)
            finally:
                store.gate.set()
                writer.cancel()
    finally:
        await asyncio.to_thread(store.close)


def submission(name: str) -> Any:
    return lambda token: st.JobSubmission(token, "ann", "", name, JobPlan(name, GANG, "{}"))


def hello(session: int = 1) -> st.HostConnected:
    return st.HostConnected("h", session, "10.0.0.1", "boot", "1", Inventory(8, 8 << 30))


async def idle() -> None:
    """Let everything that could run now run."""
    for _ in range(20):
        await asyncio.sleep(0)
