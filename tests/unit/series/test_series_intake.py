"""Reports about a job that has ended and is no longer in memory: it is read beside the event loop first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.examples import EVENTS

from holdfast._series.block import Block, Track, pack, unpack
from holdfast._series.figures import Figure
from holdfast.v1 import agent_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import CLOCK_WINDOW
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.jobs import JobHead
from holdfast_controller.shell.services.series import SeriesIntake
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.series.file import Piece


class Disk:
    """A store whose thread answers when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.waiting: list[Callable[[], None]] = []

    def jobs(self, names: Sequence[str]) -> list[Job]:
        return [codec.load_entity("job", self.rows[name]) for name in names if name in self.rows]

    def call(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        found: Future[Any] = Future()
        self.waiting.append(lambda: found.set_result(work(*args)))
        return found

    async def answer(self) -> None:
        for each in self.waiting:
            each()
        self.waiting.clear()
        await asyncio.sleep(0.01)


class Intake:
    def __init__(self) -> None:
        self.disk, self.kept, cluster = Disk(), list[Piece](), Cluster()
        for event in EVENTS:
            fold(cluster, event)
            if isinstance(event, ev.JobEnded):
                break
        (self.job,) = cluster.jobs.values()
        self.disk.rows[self.job.id] = codec.dump_entity(self.job)
        cluster.jobs.read = self.disk.jobs
        cluster.jobs.let_go(cluster.sequence, keep=0)
        assert isinstance(cluster.jobs.head(self.job.id), JobHead)
        driver: Any = SimpleNamespace(cluster=cluster, store=self.disk)

        def put(piece: Piece) -> bool:
            self.kept.append(piece)
            return True

        store: Any = SimpleNamespace(full=False, put=put)
        self.intake = SeriesIntake(driver, store)

    def take(self, ahead_s: int = 0) -> bool:
        at = (int(time.time()) + ahead_s) // 60 * 60
        block = Block(at, 60, 1, {(0, Figure.CPU): Track.flat([1.0])})
        report = agent_pb2.SeriesReport(
            number=1, job_id=self.job.id, worker="workerpool0-0", generation=1, block=pack(block)
        )
        return self.intake.take(self.job.hosts[0], report)


@pytest.fixture
async def intake() -> Intake:
    return Intake()


async def test_a_minute_waits_for_the_disk_and_reads_once(intake: Intake) -> None:
    assert not intake.take() and not intake.take() and not intake.kept
    assert len(intake.disk.waiting) == 1, "nothing piles up behind a disk that hangs"
    await intake.disk.answer()
    assert intake.take() and len(intake.kept) == 1
    assert intake.take() and not intake.disk.waiting


async def test_a_minute_of_a_job_that_the_store_lacks_is_refused_for_good(intake: Intake) -> None:
    intake.disk.rows.clear()
    assert not intake.take()
    await intake.disk.answer()
    assert intake.take() and not intake.kept


@pytest.mark.parametrize("ahead_s", [-3 * 86_400, -1800, -45, 0, 45, 1800, 3 * 86_400])
async def test_a_minute_of_a_host_whose_clock_is_wrong_is_kept_as_of_our_minute(
    intake: Intake, ahead_s: int
) -> None:
    presence = intake.intake._driver.cluster.presence_of(intake.job.hosts[0])
    presence.clock_behind_s.extend([-float(ahead_s)] * CLOCK_WINDOW)
    assert not intake.take()
    await intake.disk.answer()
    assert intake.take(ahead_s)
    (piece,) = intake.kept
    assert piece.start % 60 == 0 and abs(piece.start + 30 - time.time()) < 150
    assert unpack(piece.data).start == piece.start


@pytest.mark.parametrize("ahead_s", [-1800, 0])
async def test_what_is_no_block_is_refused_whatever_the_clock(intake: Intake, ahead_s: int) -> None:
    presence = intake.intake._driver.cluster.presence_of(intake.job.hosts[0])
    presence.clock_behind_s.extend([-float(ahead_s)] * CLOCK_WINDOW)
    assert not intake.take()
    await intake.disk.answer()
    for content in (b"", b"x", b"\x01" + b"\xff" * 40, pack(Block(60, 60, 1, {}))[:9]):
        report = agent_pb2.SeriesReport(number=1, job_id=intake.job.id, worker="workerpool0-0", generation=1)
        report.block = content
        assert intake.intake.take(intake.job.hosts[0], report)
    assert not intake.kept
