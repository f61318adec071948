"""A rank's features while the agent's own dump tool stops it: as they were, and stopped stays stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import anyio
import pytest
from tests.integration.sampling.conftest import Stage

from holdfast.hang.pipeline.features import Motion, RankFeatures
from holdfast.hang.pipeline.samples import RankSample, State
from holdfast.hang.worker_watch import WorkerWatch
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.dumps import Dumper
from holdfast_agent.shell.evidence.tools import Tools
from holdfast_agent.shim.processes import Process

pytestmark = pytest.mark.require("ptrace")
DUMPS = 3


class Examined:
    """One rank, sampled as fast as it goes while its C frames are dumped again and again."""

    def __init__(self, stage: Stage, pid: int) -> None:
        self.stage = stage
        self.process = Process(pid)
        self.tools = Tools()
        stage.sampler = stage.make_sampler(self.tools)
        self.watch = WorkerWatch("h", 1)
        self.seen: list[tuple[RankSample, RankFeatures]] = []

    async def sample(self) -> RankFeatures:
        sample = await self.stage.tick()
        features = self.watch.take(sample)
        self.seen.append((sample.ranks[0], features.ranks[0]))
        return features.ranks[0]

    async def settle(self, found: Callable[[RankFeatures], bool]) -> None:
        for _ in range(100):
            if found(await self.sample()):
                self.seen.clear()
                return
            await anyio.sleep(0.05)
        raise AssertionError(f"never seen; the last was {self.seen[-1]}")

    async def dump(self, state: str) -> None:
        """Dump until samples fell into a stop, a few times at least."""
        dumper = Dumper(self.tools, Blocking())
        over = False

        async def sample() -> None:
            while not over:
                await self.sample()
                await anyio.sleep(0.005)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sample)
            for taken in range(40):
                dump = await dumper.native(self.process, state)
                assert dump.threads, dump.problem
                if taken >= DUMPS and any(sample.paused_by_us for sample, _ in self.seen):
                    break
            over = True
        await self.sample()
        assert any(sample.paused_by_us for sample, _ in self.seen), "no sample fell into a dump"


async def test_a_rank_that_a_signal_stopped_stays_stopped_while_it_is_dumped(stage: Stage) -> None:
    pid = stage.start("time.sleep(600)")
    await stage.up()
    rank = Examined(stage, pid)
    os.kill(pid, signal.SIGSTOP)
    await rank.settle(lambda features: features.motion is Motion.STOPPED)
    await rank.dump("T")
    assert {features.motion for _, features in rank.seen} == {Motion.STOPPED}
    assert {features.state for _, features in rank.seen} == {State.STOPPED}
    assert not any(features.traced for _, features in rank.seen)
    assert len({features.essence for _, features in rank.seen}) == 1


async def test_a_rank_that_waits_is_not_stopped_by_its_dumps(stage: Stage) -> None:
    pid = stage.start("lock = threading.Lock(); lock.acquire(); lock.acquire()")
    await stage.up()
    rank = Examined(stage, pid)
    await rank.settle(lambda features: features.motion is Motion.BLOCKED)
    await rank.dump("S")
    assert not any(features.traced for _, features in rank.seen)
    assert Motion.STOPPED not in {features.motion for _, features in rank.seen}
    assert {features.state for _, features in rank.seen} <= {State.SLEEPING, State.RUNNING}


async def test_a_dump_between_two_samples_is_no_movement_either(stage: Stage) -> None:
    """A loader's consumer, which polls now and then: a dump wakes it, and the time until its next poll begins anew."""
    pid = stage.start("import select\nwhile True: select.select([], [], [], 60)")
    await stage.up()
    rank = Examined(stage, pid)
    await rank.settle(lambda features: features.motion is Motion.BLOCKED)
    for _ in range(3):
        await Dumper(rank.tools, Blocking()).native(rank.process, "S")
        await rank.sample()
    assert [sample.paused_by_us for sample, _ in rank.seen] == [True] * 3
    assert {features.motion for _, features in rank.seen} == {Motion.BLOCKED}
    assert len({features.still_since_s for _, features in rank.seen}) == 1
    await rank.sample()
    assert not rank.seen[-1][0].paused_by_us


async def test_a_stop_by_a_signal_between_two_dumps_is_seen(stage: Stage) -> None:
    pid = stage.start("time.sleep(600)")
    await stage.up()
    rank = Examined(stage, pid)
    await rank.dump("S")
    os.kill(pid, signal.SIGSTOP)
    await rank.settle(lambda features: features.motion is Motion.STOPPED)
    await rank.dump("T")
    assert {features.motion for _, features in rank.seen} == {Motion.STOPPED}
