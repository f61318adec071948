"""Stores of a controller that are filled by the store's own commits, with whatever times they should have.

A history of 100,000 jobs, or of 90 days, would take too long to live through: its events are folded, committed and
put into snapshots as the controller does, and a real one then starts over them.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.costs.history import SPEC, Controller
from bench.hollow.cluster import HollowCluster
from bench.scale_rows import RANKS_PER_HOST

from holdfast._series.block import Block, Track, pack
from holdfast._series.figures import Figure
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Gpu, Inventory, Place
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.recovery import EndReason, Related
from holdfast_controller.core.model.runtime import Started
from holdfast_controller.shell.store.series.file import DAY, HOUR, MINUTE, QUARTER, Limits, SeriesFile

PATIENCE = "suspect_after = 30000\nlost_after = 36000\n"
"""No host of such a store is there: nobody is to miss them."""
KEEP_ALL = "[retention]\njobs_most = 0\n"
JOBS_AT_ONCE = 500
GIB = 1 << 30
START = struct.Struct("<q")
"""The time in a packed block, behind its version."""


@dataclass(frozen=True)
class Life:
    """One job: when it was submitted, its workers of eight ranks, and when each relaunch began; it goes on."""

    name: str
    begin: float
    workers: int = 1
    relaunches: Sequence[float] = ()
    end: float | None = None
    state: JobState = JobState.SUCCEEDED
    owner: str = "ann"

    def events(self) -> Iterator[ev.Event]:
        """What happens to it, in order."""
        name, at = self.name, self.begin
        gang = Gang(
            (Pool(self.workers, Task(("python", "train.py")), processes=RANKS_PER_HOST, gpus=RANKS_PER_HOST),)
        )
        yield ev.JobSubmitted(
            job_id=name,
            at=Wall(at),
            owner=self.owner,
            request_id=f"q-{name}",
            display_name=f"train {name}",
            labels={"team": "vision"},
            gang=gang,
            spec_json=SPEC.replace('"replicaCount": 1', f'"replicaCount": {self.workers}, "processesPerWorker": 8'),
        )
        places = tuple(Place(f"node-{n:04}", _gpus(n)) for n in range(self.workers))
        yield ev.JobPlaced(job_id=name, at=Wall(at + 1), attempt=1, generation=1, places=places)
        yield from self._launch(1, at + 2)
        for generation, failed in enumerate(self.relaunches, 2):
            yield from self._exits(generation - 1, failed, ExitReason.SIGNALED)
            yield ev.RestartDecided(
                job_id=name,
                at=Wall(failed + 1),
                generation=generation,
                end_reason=EndReason.SIGNALED,
                related=Related(),
                stop_reason=ExitReason.STOPPED,
                failed_at=Wall(failed),
            )
            yield from self._launch(generation, failed + 40)
        if self.end is not None:
            well = self.state is JobState.SUCCEEDED
            reason = ExitReason.COMPLETED if well else ExitReason.NONZERO_EXIT
            yield from self._exits(1 + len(self.relaunches), self.end, reason)
            yield ev.JobEnding(job_id=name, at=Wall(self.end + 1), outcome=self.state)
            for n in range(self.workers):
                yield ev.WorkerEmptied(job_id=name, at=Wall(self.end + 2), worker=f"workerpool0-{n}")
            yield ev.JobEnded(job_id=name, at=Wall(self.end + 3), state=self.state)

    def _launch(self, generation: int, at: float) -> Iterator[ev.Event]:
        meeting = Rendezvous("10.0.0.1", 29500, "s" * 32, ("10.0.0.1",) * self.workers, (29500,) * self.workers)
        yield ev.GangLaunched(job_id=self.name, at=Wall(at), generation=generation, rendezvous=meeting)
        pids = tuple(2_000 + n for n in range(RANKS_PER_HOST))
        started = {n: Started(1_000, pids) for n in range(self.workers)}
        yield ev.GangStarted(job_id=self.name, at=Wall(at + 1), generation=generation, started=started)

    def _exits(self, generation: int, at: float, first: ExitReason) -> Iterator[ev.Event]:
        """All ranks end; for ``first`` the first, and the others because they were stopped, unless all did well."""
        for rank in range(self.workers * RANKS_PER_HOST):
            reason = first if not rank or first is ExitReason.COMPLETED else ExitReason.STOPPED
            code = {ExitReason.COMPLETED: 0, ExitReason.NONZERO_EXIT: 1}.get(reason)
            signal = {ExitReason.SIGNALED: 11, ExitReason.STOPPED: 15}.get(reason)
            gone = Exit(1, generation, rank, reason, code, signal, end_time=at + rank / 1000)
            worker = f"workerpool0-{rank // RANKS_PER_HOST}"
            yield ev.RankExited(job_id=self.name, at=Wall(at + 0.5), worker=worker, exit=gone)


@dataclass(frozen=True)
class Going:
    """A job of one rank without a GPU that goes on."""

    name: str
    begin: float
    host: int
    owner: str = "ann"

    def events(self) -> Iterator[ev.Event]:
        """What has happened to it, in order."""
        name, at = self.name, Wall(self.begin)
        yield ev.JobSubmitted(
            job_id=name,
            at=at,
            owner=self.owner,
            request_id=f"q-{name}",
            display_name=f"train {name}",
            labels={"team": "vision"},
            gang=Gang((Pool(1, Task(("python", "train.py"))),)),
            spec_json=SPEC,
        )
        yield ev.JobPlaced(job_id=name, at=at, attempt=1, generation=1, places=(Place(f"node-{self.host:04}", ()),))
        meeting = Rendezvous("10.0.0.1", 29500, "s" * 32, ("10.0.0.1",), (29500,))
        yield ev.GangLaunched(job_id=name, at=at, generation=1, rendezvous=meeting)
        yield ev.GangStarted(job_id=name, at=at, generation=1, started={0: Started(1_000, (2_000,))})


def hosts(count: int, at: float) -> Iterator[ev.Event]:
    """So many hosts with eight GPUs come."""
    for n in range(count):
        gpus = tuple(Gpu(name, i, "NVIDIA H100 80GB HBM3", 80 * GIB) for i, name in enumerate(_gpus(n)))
        inventory = Inventory(96, 1 << 40, gpus)
        yield ev.HostJoined(
            at=Wall(at), host=f"node-{n:04}", address="", boot_id="b", agent_version="1", inventory=inventory
        )


def _gpus(host: int) -> tuple[str, ...]:
    return tuple(f"GPU-{host}-{n}" for n in range(RANKS_PER_HOST))


def ended_jobs(count: int, now: float) -> Iterator[Life]:
    """Jobs of one host that ended one after the other, the last a while ago; one in ten failed."""
    for n in range(count):
        begin = now - 60.0 * (count - n) - HOUR
        state = JobState.SUCCEEDED if n % 10 else JobState.FAILED
        yield Life(f"ended-{n:06}", begin, end=begin + 50, state=state, owner=("ann", "tv", "wall")[n % 3])


def jobs_that_go_on(count: int, now: float, on: int) -> Iterator[Going]:
    """So many jobs of a rank each, spread over so many hosts."""
    for n in range(count):
        yield Going(f"live-{n:06}", now - HOUR + n / count, n % on, owner=("ann", "tv", "wall")[n % 3])


def fill(database: Path, count: int, lives: Iterator[Life | Going]) -> None:
    """A new store with so many hosts, and these jobs."""
    on = Controller(database)
    on.take(list(hosts(count, time.time() - 100 * DAY)))
    while some := [life for _, life in zip(range(JOBS_AT_ONCE), lives, strict=False)]:
        on.take([event for life in some for event in life.events()])
        while on.cluster.jobs.let_go(on.cluster.sequence, keep=0):
            pass
    on.store.close()


def write_series(file: Path, life: Life, now: float, days: int) -> None:
    """Minutes of 30 days, and quarters of an hour of those before, of each rank; all upkeep is done."""
    made, dice = SeriesFile(file, reserve_bytes=0), random.Random(1)
    made.size()
    first = int(now - days * DAY) // DAY * DAY
    month = int(now - 30 * DAY) // DAY * DAY
    spans = [(at, DAY, QUARTER) for at in range(first, month, DAY)]
    spans += [(at, HOUR, MINUTE) for at in range(month, int(now) - HOUR, HOUR)]
    for worker in range(life.workers):
        ranks = range(worker * RANKS_PER_HOST, (worker + 1) * RANKS_PER_HOST)
        kinds = {
            (step, kind): pack(Block(0, step, span // step, _tracks(ranks, span // step, dice)))
            for span, step in ((DAY, QUARTER), (HOUR, MINUTE))
            for kind in range(3)
        }
        rows = []
        for number, (at, span, step) in enumerate(spans):
            # A few kinds are enough, at other times: to make each value of 90 days would take minutes.
            moved = kinds[step, number % 3]
            rows.append((life.name, at, f"workerpool0-{worker}", 1, span, moved[:1] + START.pack(at) + moved[9:]))
            reached = Track.flat((at - first + n * step) / 2 for n in range(span // step))
            steps = pack(Block(at, step, span // step, {(ranks[0], Figure.STEP): reached}))
            rows.append((life.name, at, f"workerpool0-{worker}", 2, span, steps))
        with sqlite3.connect(file) as kept:
            kept.executemany("INSERT INTO blocks VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)
        kept.close()
    while made.tidy(now, Limits(most_bytes=0)):
        pass
    made.close()


def _tracks(ranks: range, slots: int, dice: random.Random) -> dict[tuple[int, Figure], Track]:
    means = {
        Figure.GPU_UTIL: (90, 5),
        Figure.MEMORY_USED: (71 * GIB, GIB),
        Figure.POWER: (640, 25),
        Figure.CPU: (1.2, 0.1),
    }
    found = {}
    for rank in ranks:
        for figure, (mean, spread) in means.items():
            values = [dice.gauss(mean, spread) for _ in range(slots)]
            values = [min(value, 100.0) for value in values] if figure is Figure.GPU_UTIL else values
            found[rank, figure] = Track.flat(values)
        found[rank, Figure.SAMPLES] = Track.flat([30.0] * slots)
    return found


async def serving(directory: Path, fill_at: Callable[[Path], None]) -> tuple[HollowCluster, str]:
    """A controller over a store that ``fill_at`` made, and the address that signs in."""
    cluster = HollowCluster(directory, 0, 1, RANKS_PER_HOST)
    await asyncio.to_thread(cluster.prepare)
    settings = directory / "controller.toml"
    settings.write_text(PATIENCE + settings.read_text() + KEEP_ALL)
    cluster.database.parent.mkdir()
    await asyncio.to_thread(fill_at, cluster.database)
    cluster.start_controller()
    async with cluster.client() as client:
        await cluster.answering(client)
        return cluster, await client.web.address()
