"""Calls of one party, one after the other, while another calls too and while none does."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from holdfast_controller.shell.calls import slices
from holdfast_controller.shell.calls.slices import Turns

pytestmark = pytest.mark.anyio
WORK_S = 0.004


class Time:
    """A clock that only work and waits move on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns = Turns()
        self.clock = {"thread_time": 0.0, "monotonic": 0.0}
        self.waited_s = 0.0
        times = {name: partial(self.clock.__getitem__, name) for name in self.clock}
        monkeypatch.setattr(slices, "time", SimpleNamespace(**times))
        monkeypatch.setattr(slices, "asyncio", SimpleNamespace(Lock=asyncio.Lock, sleep=self.sleep))

    async def sleep(self, seconds: float) -> None:
        self.waited_s += seconds
        self.clock["monotonic"] += seconds

    def work(self, seconds: float = WORK_S) -> None:
        self.clock["thread_time"] += seconds
        self.clock["monotonic"] += seconds

    async def call(self, party: str, work_s: float = WORK_S) -> None:
        async def handler() -> str:
            self.work(work_s / 2)
            await asyncio.sleep(0)
            self.work(work_s / 2)
            return party

        slices.ASKED_BY.set(party)
        assert await self.turns.answer(handler) == party


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_who_calls_alone_never_waits(at: Time) -> None:
    for _ in range(1_000):
        await at.call("user/eve")
    assert at.waited_s == 0


async def test_beside_others_a_party_has_its_share_and_those_who_ask_little_do_not_wait(at: Time) -> None:
    began = at.clock["monotonic"]
    for _ in range(500):
        await at.call("user/bob", 0.0001)
        waited_s = at.waited_s
        await at.call("user/eve")
    took_s = at.clock["monotonic"] - began
    assert 500 * WORK_S / took_s == pytest.approx(slices.SHORT_SHARE, rel=0.1)
    assert at.waited_s > waited_s
    waited_s = at.waited_s
    await at.call("user/bob", 0.0001)
    assert at.waited_s == waited_s


async def test_what_was_done_alone_is_not_owed_once_another_calls(at: Time) -> None:
    for _ in range(1_000):
        await at.call("user/eve")
    await at.call("user/bob")
    await at.call("user/eve")
    assert at.waited_s == 0


async def test_others_count_for_a_moment_after_their_last_call(at: Time) -> None:
    await at.call("user/bob")
    await at.call("user/eve", 10.0)
    at.waited_s = 0
    at.work(slices.OTHERS_S + 0.1)
    await at.call("user/eve")
    assert at.waited_s == 0


async def test_calls_that_begin_together_wait_one_behind_the_other(
    at: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each takes isn't known yet, so a slice is taken for it."""
    waits: list[float] = []
    go = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    await at.call("user/bob")
    slices.ASKED_BY.set("user/eve")
    monkeypatch.setattr(slices, "asyncio", SimpleNamespace(Lock=asyncio.Lock, sleep=sleep))
    calls = [asyncio.get_running_loop().create_task(at.turns.answer(go.wait)) for _ in range(40)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*calls)
    beyond = 40 - int(slices.SHORT_S / slices.SLICE_S)
    assert len(waits) == beyond
    assert waits[-1] - waits[0] == pytest.approx((beyond - 1) * slices.SLICE_S / slices.SHORT_SHARE)


async def test_a_call_that_fails_counts_as_one_that_is_answered(at: Time) -> None:
    async def handler() -> None:
        at.work(1.0)
        await asyncio.sleep(0)
        raise ValueError("as it is")

    await at.call("user/bob")
    slices.ASKED_BY.set("user/eve")
    with pytest.raises(ValueError, match="as it is"):
        await at.turns.answer(handler)
    await at.call("user/bob", 0.0001)
    await at.call("user/eve")
    assert at.waited_s > 1.0


async def test_a_call_is_ended_where_it_stands_and_may_clean_up(at: Time) -> None:
    cleaned = []

    async def handler() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    await at.call("user/bob")
    slices.ASKED_BY.set("user/eve")
    task = asyncio.get_running_loop().create_task(at.turns.answer(handler))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]


@pytest.mark.parametrize("party", ["user/eve", slices.READERS])
async def test_work_for_all_readers_has_short_slices_with_a_pause_and_a_commit_behind_each(
    at: Time, party: str
) -> None:
    commits = 0

    async def between_commits() -> None:
        nonlocal commits
        commits += 1

    at.turns.between_commits = between_commits
    slices.ASKED_BY.set(party)
    some, pauses = at.turns.begin(), list[float]()
    for _ in range(8):
        before = at.waited_s
        at.work(slices.READERS_SLICE_S)
        await some.rest()
        pauses.append(at.waited_s - before)
    if party == slices.READERS:
        assert pauses == pytest.approx([slices.READERS_PAUSES * slices.READERS_SLICE_S] * 8)
        assert commits == 8
    else:
        assert pauses == [0.0] * 8, "a party of its own has some in a row"
