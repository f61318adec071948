"""Samples are handed to whoever listens, in order and within bounds."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import LogLine, WorkerSample, decode
from holdfast_agent.shell.sampling import listeners
from holdfast_agent.shell.sampling.listeners import Listeners

pytestmark = pytest.mark.anyio
SAMPLE = WorkerSample("job-1", "workerpool0-0", 1, 0.0)
KEY = WorkerId("job-1", "workerpool0-0")


async def test_each_listener_gets_every_sample_of_its_worker_from_when_it_came() -> None:
    every = Listeners()
    every.on_sample(SAMPLE)
    with every.listening(KEY) as first:
        every.on_sample(replace(SAMPLE, at_s=1.0))
        with every.listening(KEY) as second:
            every.on_sample(replace(SAMPLE, at_s=2.0))
            every.on_sample(replace(SAMPLE, worker="workerpool1-0", at_s=3.0))
            assert [decode((await first.get()).decode()).at_s for _ in range(2)] == [1.0, 2.0]
            assert decode((await second.get()).decode()).at_s == 2.0
            with anyio.move_on_after(0) as waiting:
                await second.get()
            assert waiting.cancelled_caught
    assert not every._of


async def test_listener_that_does_not_keep_up_is_told_so_and_costs_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "WAITING_BYTES", 200)
    every = Listeners()
    with every.listening(KEY) as slow:
        for _ in range(10):
            every.on_sample(SAMPLE)
        assert slow.overrun
        assert await slow.get() == b""


async def test_of_a_flood_of_output_the_newest_lines_are_kept() -> None:
    every = Listeners()
    flood = tuple(LogLine(0, "out", f"{n:0100}") for n in range(20_000))
    with every.listening(KEY) as listener:
        every.on_sample(replace(SAMPLE, lines=flood, skipped_bytes=7))
        line = await listener.get()
    found = decode(line.decode())
    assert len(line) < 1 << 20
    assert 1000 < len(found.lines) < 5000
    assert found.lines == flood[-len(found.lines) :]
    assert found.skipped_bytes == 7 + 100 * (20_000 - len(found.lines))
