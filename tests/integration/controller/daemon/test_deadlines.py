"""The driver's deadlines: met in time, and no step is taken for those that were put off."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.hosts.host import Inventory
from holdfast_controller.core.step import commands as st
from holdfast_controller.core.step.step import Policies
from holdfast_controller.core.step.timers import ClusterTimer
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.store.store import Store

KEY = (ClusterTimer.RETURNS, "")


async def test_a_deadline_that_was_put_off_is_met_then_and_an_earlier_one_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "holdfast.db")
    driver = Driver(store, await asyncio.wrap_future(store.call(store.open)), Policies(secret_key=b"k"))
    driver.start()
    step, came = driver.reactor.step, asyncio.Queue[float]()

    def record(incoming: st.Input, now: Any) -> Any:
        if isinstance(incoming, st.TimePassed):
            came.put_nowait(now.mono)
        return step(incoming, now)

    def due_in(seconds: float) -> float:
        at = Mono(time.monotonic() + seconds)
        driver.reactor.timers.set(KEY, at)
        driver.feed(st.HostBeat("h", 1))
        return at

    monkeypatch.setattr(driver.reactor, "step", record)
    driver.feed(st.HostConnected("h", 1, "10.0.0.1", "boot", "1", Inventory(8, 8 << 30)))
    try:
        async with asyncio.timeout(10):
            due_in(0.1)
            put_off = due_in(0.4)
            assert await came.get() >= put_off

            due_in(1000.0)
            earlier = due_in(0.1)
            assert await came.get() >= earlier
    finally:
        await asyncio.to_thread(store.close)
