"""When the frames of a rank are read, how often, and what is made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
import pytest

from holdfast._session.reports import WorkerId
from holdfast.hang.evidence.evidence import Dump, Evidence, Look, ProcessEvidence, RankEvidence, ThreadStack, Vector
from holdfast.hang.evidence.frames import Frame
from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.samples import RankSample
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.shell.hangs.stack_watch import StackWatch

pytestmark = pytest.mark.anyio
KEY = WorkerId("job-1", "workerpool0-0")
FRAMES = (Frame("get", "/usr/lib/python3.11/queue.py", 7), Frame("load", "/home/ada/train.py", 9))
DUMP = Dump("py-spy", (ThreadStack(1, frames=FRAMES, main=True),))


class Over(Exception):
    """The time of a test is up."""


@dataclass
class Host:
    """A watch on a clock that jumps; each read takes half a second, and 30 ms of CPU time."""

    ranks: dict[int, RankFeatures] = field(default_factory=dict)
    waits: dict[int, Wait] = field(default_factory=dict)
    output: OutputFeatures = field(default_factory=OutputFeatures)
    now_s: float = 0.0
    cpu_s: float = 0.0
    noted_s: float = -2.0
    until_s: float = 0.0
    read: list[tuple[float, int]] = field(default_factory=list)
    dump: Dump = DUMP

    def __post_init__(self) -> None:
        self.watch = StackWatch(self._dump, monotonic=lambda: self.now_s, cpu=lambda: self.cpu_s, sleep=self._sleep)

    async def _dump(self, pid: int) -> Dump:
        self.read.append((self.now_s, pid))
        self.now_s += 0.5
        self.cpu_s += 0.03
        return self.dump

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        while self.noted_s + 2.0 <= self.now_s:
            self.noted_s += 2.0
            self.note(self.noted_s)
        if self.now_s >= self.until_s:
            raise Over
        await anyio.lowlevel.checkpoint()

    def note(self, at_s: float) -> None:
        samples = tuple(
            RankSample(at_s, rank, wait=self.waits.get(rank), pid=0 if seen.motion is Motion.EXITED else 100 + rank)
            for rank, seen in self.ranks.items()
        )
        vector = WorkerFeatures(KEY.worker, "h", at_s, tuple(self.ranks.values()), self.output)
        self.watch.note(KEY, WorkerSample(KEY.job, KEY.worker, 1, at_s, samples), vector)

    async def lives(self, seconds: float) -> list[tuple[float, int]]:
        """The reads within so many seconds more."""
        self.until_s, before = self.now_s + seconds, len(self.read)
        with pytest.raises(Over):
            await self.watch.run()
        return self.read[before:]


async def test_a_rank_that_stands_still_is_read_after_ten_seconds_then_less_and_less_often() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0)})
    assert await host.lives(9) == []
    assert [round(at_s) for at_s, _ in await host.lives(1000)] == [10, 31, 91, 392, 693, 993]
    found = host.watch.found(KEY)[0]
    assert (found.kind, found.place) == (WaitKind.LOCK, "train.py:9 `queue.get`")


async def test_a_rank_that_has_survived_longer_stillness_is_left_alone_as_long() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0, still_longest_s=50.0)})
    assert await host.lives(59) == []
    assert len(await host.lives(5)) == 1


@pytest.mark.parametrize("motion", [Motion.WORKING, Motion.EXITED, Motion.UNSEEN, Motion.STOPPED])
async def test_others_are_not_read(motion: Motion) -> None:
    host = Host({0: RankFeatures(0, motion, 0.0)})
    assert await host.lives(400) == []


async def test_a_rank_under_a_debugger_is_not_read() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0, traced=True)})
    assert await host.lives(400) == []


async def test_a_rank_that_burns_cpu_is_read_once_the_output_is_silent() -> None:
    host = Host({0: RankFeatures(0, Motion.BURNING, 0.0)}, output=OutputFeatures(last_progress_s=5.0))
    assert [round(at_s) for at_s, _ in await host.lives(60)] == [35, 56]
    host.output = OutputFeatures(last_progress_s=host.now_s)
    assert await host.lives(25) == []
    assert host.watch.found(KEY) == {}


async def test_a_rank_that_starts_is_not_read_before_it_could_have_printed_anything() -> None:
    host = Host({0: RankFeatures(0, Motion.STIRRING, 500.0)}, now_s=500.0, noted_s=498.0)
    assert await host.lives(28) == []
    assert len(await host.lives(5)) == 1


async def test_another_wait_is_read_again_and_the_old_stack_forgotten() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0)}, {0: Wait(WaitKind.UNKNOWN, since_s=0.0)})
    assert len(await host.lives(12)) == 1
    host.waits[0] = Wait(WaitKind.SLEEP, since_s=host.now_s)
    host.note(host.now_s)
    assert host.watch.found(KEY) == {}
    assert [round(at_s) for at_s, _ in await host.lives(25)] == [31]


async def test_a_rank_that_goes_to_and_fro_is_read_now_and_then_only() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0)})
    reads = 0
    for turn in range(60):
        motion = Motion.STIRRING if turn % 2 else Motion.BLOCKED
        host.ranks[0] = RankFeatures(0, motion, 0.0)
        reads += len(await host.lives(5))
    assert reads <= 300 / 20


async def test_many_ranks_are_read_one_after_the_other_with_pauses() -> None:
    host = Host({rank: RankFeatures(rank, Motion.BLOCKED, 0.0) for rank in range(128)})
    host.waits = {rank: Wait(WaitKind.PEER, since_s=0.0) for rank in range(128) if rank != 77}
    reads = await host.lives(190)
    assert {pid for _, pid in reads} == {100 + rank for rank in range(128)}
    assert reads[0][1] == 177, "the one whose call says least"
    assert host.cpu_s / 180 < 0.05


async def test_what_a_diagnosis_has_read_is_used() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0)})
    host.note(0.0)
    looks = (Look(1.0, Vector(), DUMP),)
    ranks = (RankEvidence(0, ProcessEvidence(100, looks=looks)), RankEvidence(1, ProcessEvidence(101, looks=looks)))
    host.watch.on_evidence(KEY, Evidence("job-1", "workerpool0-0", "h", 1, 0.0, ranks=ranks), 3.0)
    assert host.watch.found(KEY)[0].at_s == 4.0
    assert await host.lives(15) == []
    host.watch.forget(KEY)
    assert host.watch.found(KEY) == {}


async def test_a_dump_that_failed_leaves_what_was_read_before() -> None:
    host = Host({0: RankFeatures(0, Motion.BLOCKED, 0.0)})
    await host.lives(12)
    host.dump = Dump("py-spy", problem="py-spy may not read the process")
    await host.lives(30)
    assert host.watch.found(KEY)[0].kind is WaitKind.LOCK
