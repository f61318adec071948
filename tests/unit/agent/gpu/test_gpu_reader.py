"""gpu.reader.NvmlSource against helpers that misbehave on cue: no process and no real time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from holdfast._base.codec import to_plain
from holdfast_agent.core.gpu.signals import GpuSignals
from holdfast_agent.core.model.gpus import Blind, Gpu, GpuUsage, Reading
from holdfast_agent.gpu.child import ChildError
from holdfast_agent.gpu.reader import _ANSWERS, BorrowedGpus, NvmlSource, ReadLimits

EMPTY = {"gpus": [], "unidentified": [], "physical": [], "conditions": [], "note": ""}
HANG = "hang"
# Whatever waits at all is late.
LIMITS = ReadLimits(answer_s=0, start_s=30, backoff_s=1, backoff_most_s=60)


@dataclass
class StubChild:
    """Answers each request with the next of ``script``: a reply, an error or a hang."""

    pid: int
    script: list[Any] = field(default_factory=list)
    ready: Any = None
    dies_when_killed: bool = True
    killed: bool = False

    async def wait_ready(self) -> None:
        if self.ready == HANG:
            await anyio.sleep_forever()
        if isinstance(self.ready, Exception):
            raise self.ready

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = self.script.pop(0) if self.script else {"ok": EMPTY}
        if reply == HANG:
            await anyio.sleep_forever()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def kill(self) -> None:
        self.killed = True

    def gone(self) -> bool:
        return self.killed and self.dies_when_killed

    async def wait(self, timeout_s: float) -> None:
        pass


class World:
    """A clock that is set by hand, and the children that were started."""

    def __init__(self, *children: StubChild) -> None:
        self.now = 1000.0
        self.waiting = list(children)
        self.started: list[StubChild] = []
        self.source = NvmlSource(LIMITS, start=self.start, monotonic=lambda: self.now)

    async def start(self) -> StubChild:
        self.started.append(self.waiting.pop(0))
        return self.started[-1]


async def test_helper_is_started_by_the_first_call_and_kept() -> None:
    world = World(StubChild(1))
    assert world.started == []
    assert await world.source.inventory() == Reading()
    assert await world.source.inventory() == Reading()
    assert [child.pid for child in world.started] == [1]


async def test_late_answer_kills_the_helper_and_blinds() -> None:
    world = World(StubChild(1, [HANG]))
    assert await world.source.inventory() == Blind("the GPU driver did not answer within 0 s")
    assert world.started[0].killed


async def test_replacement_waits_longer_after_each_failure_up_to_a_minute() -> None:
    world = World(*(StubChild(n, [HANG]) for n in range(9)))
    await world.source.inventory()
    for count, wait_s in enumerate([1, 2, 4, 8, 16, 32, 60, 60], start=1):
        world.now += wait_s - 0.01
        await world.source.inventory()
        assert len(world.started) == count
        world.now += 0.01
        await world.source.inventory()
        assert len(world.started) == count + 1


async def test_calls_during_the_back_off_repeat_the_reason_and_start_nothing() -> None:
    world = World(StubChild(1, [ChildError("it broke")]), StubChild(2))
    assert await world.source.inventory() == Blind("it broke")
    world.now += 0.99
    assert await world.source.usage() == Blind("it broke")
    assert len(world.started) == 1
    world.now += 0.01
    assert await world.source.inventory() == Reading()
    assert len(world.started) == 2


def test_back_off_doubles_up_to_its_bound() -> None:
    assert [LIMITS.backoff_after(n) for n in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]


async def test_an_answer_resets_the_back_off() -> None:
    world = World(StubChild(1, [HANG]), StubChild(2, [HANG]), StubChild(3, [{"ok": EMPTY}, HANG]), StubChild(4))
    await world.source.inventory()
    world.now += 1
    await world.source.inventory()
    world.now += 2
    assert await world.source.inventory() == Reading()
    await world.source.inventory()
    world.now += 1
    assert await world.source.inventory() == Reading()
    assert len(world.started) == 4


async def test_unkillable_helper_gets_one_replacement_and_no_more_until_it_is_gone() -> None:
    world = World(*(StubChild(n, [HANG], dies_when_killed=False) for n in (1, 2)), StubChild(3))
    for _ in range(2):
        await world.source.inventory()
        world.now += 60
    stuck = Blind("GPU helpers hang in the driver and can't be killed (pids 1, 2)")
    assert await world.source.inventory() == stuck
    world.now += 3600
    assert await world.source.inventory() == stuck
    assert len(world.started) == 2
    world.started[0].dies_when_killed = True
    assert await world.source.inventory() == Reading()


async def test_slow_start_is_blindness_without_a_kill_until_its_bound() -> None:
    world = World(StubChild(1, ready=HANG), StubChild(2))
    assert await world.source.inventory() == Blind("the GPU driver is still starting")
    world.now += 29
    assert await world.source.inventory() == Blind("the GPU driver is still starting")
    assert not world.started[0].killed
    world.now += 1
    assert await world.source.inventory() == Blind("the GPU driver did not start within 30 s")
    assert world.started[0].killed


async def test_slow_start_that_ends_in_time_is_answered_by_the_same_helper() -> None:
    world = World(StubChild(1, ready=HANG))
    await world.source.inventory()
    world.started[0].ready = None
    assert await world.source.inventory() == Reading()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"failed": "the NVIDIA driver is not loaded"}, "the NVIDIA driver is not loaded"),
        ({"error": "unknown op 'inventory'"}, "unknown op 'inventory'"),
        (ChildError("the GPU helper ended with status 1"), "the GPU helper ended with status 1"),
    ],
)
async def test_helper_that_has_no_answer_is_replaced(reply: Any, reason: str) -> None:
    world = World(StubChild(1, [reply]), StubChild(2))
    assert await world.source.inventory() == Blind(reason)
    assert world.started[0].killed
    world.now += 1
    assert await world.source.inventory() == Reading()


@pytest.mark.parametrize("answer", [None, {}, {**EMPTY, "gpus": [{"uuid": "GPU-0"}]}, {**EMPTY, "gpus": [7]}])
async def test_answer_of_another_version_is_blindness(answer: Any) -> None:
    world = World(StubChild(1, [{"ok": answer}]))
    blind = await world.source.inventory()
    assert isinstance(blind, Blind)
    assert "another version" in blind.reason


async def test_helper_that_can_not_be_started_is_blindness() -> None:
    async def start() -> StubChild:
        raise ChildError("the GPU helper can't be started: Resource temporarily unavailable")

    source = NvmlSource(LIMITS, start=start, monotonic=lambda: 0.0)
    assert await source.inventory() == Blind("the GPU helper can't be started: Resource temporarily unavailable")


async def test_callers_change_of_mind_ends_the_helper_but_is_no_failure() -> None:
    world = World(StubChild(1, [HANG]), StubChild(2))
    world.source._limits = ReadLimits(answer_s=3600)
    async with anyio.create_task_group() as group:
        group.start_soon(world.source.inventory)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert world.started[0].killed
    assert await world.source.inventory() == Reading()


ONE = Reading((Gpu("GPU-1", 0, "H100", 80 << 30),))
BUSY = (GpuSignals("GPU-1", util_pct=98.0),)
USED = GpuUsage("GPU-1", used_bytes=5, pids=(7,))


async def test_of_borrowed_gpus_the_activity_alone_is_read() -> None:
    child = StubChild(1, [{"ok": to_plain(each, _ANSWERS)} for each in (ONE, BUSY, (USED,))])
    source = BorrowedGpus(World(child).source)
    assert await source.inventory() == Reading() and await source.health() == ()
    assert await source.usage() == ()  # nothing was found so far
    signals = await source.signals()
    assert (signals, await source.usage()) == (BUSY, (USED,))


async def test_a_task_without_gpus_keeps_no_helper() -> None:
    world = World(StubChild(1))
    source = BorrowedGpus(world.source)
    assert await source.signals() == () and await source.signals() == ()
    assert [child.killed for child in world.started] == [True]


async def test_borrowed_gpus_that_cannot_be_read_are_tried_again() -> None:
    world = World(StubChild(1, [ChildError("it broke")]), StubChild(2))
    source = BorrowedGpus(world.source)
    assert await source.signals() == Blind("it broke")
    world.now += 1.0
    assert await source.signals() == ()
