"""Samples every running worker on one timer and passes the samples to the listeners.

Nothing is started or stopped on the way of a launch: at each tick the sampler asks what runs now. It reads in a
thread with a deadline (see ``turn``); workers that a late tick didn't reach are read again at once, around what is
stuck.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial

import anyio
import anyio.lowlevel

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast.hang.records.recording import WorkerSample
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.sampling.gpu_signals import GpuSignalWatch
from holdfast_agent.shell.sampling.guarded_reader import Readers, Turn
from holdfast_agent.shell.sampling.holders import Tables
from holdfast_agent.shell.sampling.processes import Table
from holdfast_agent.shell.sampling.tree import NO_TOOLS, DumpTools, Tree
from holdfast_agent.shell.sampling.waits import WaitReader
from holdfast_agent.shell.sampling.worker import FILES_EVERY_S, Watched, WorkerSampling

TICK_S = 2.0
DEADLINE_S = 1.0
LAST_LOOK_S = 1.0
"""At most; some milliseconds where nothing blocks."""
_TRIES = 3

OnSample = Callable[[WorkerSample], None]
OnTick = Callable[[float, bool], None]
"""Gets the seconds that one round over all workers took, and whether it missed its deadline."""


class Sampler:
    """Samples the workers that ``watched`` returns; calls ``on_sample`` in the event loop, once per worker and tick.

    ``tools`` are the agent's own, which stop processes for moments; they are asked in a reader's thread.
    """

    def __init__(
        self,
        facts: HostFacts,
        source: GpuSource,
        watched: Callable[[], Iterable[Watched]],
        on_sample: OnSample,
        *,
        tools: DumpTools = NO_TOOLS,
        on_tick: OnTick = lambda *_: None,
        tick_s: float = TICK_S,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._facts = facts
        self._watched = watched
        self._on_sample = on_sample
        self._tools = tools
        self._tick_s = tick_s
        self._deadline_s = deadline_s
        self._workers: dict[WorkerId, WorkerSampling] = {}
        self._table = Table()
        self._waits = WaitReader(Tables(self._trees_of))
        self._readers = Readers()
        self._reading = anyio.Lock()
        self.gpus = GpuSignalWatch(source, lambda: bool(self._workers))
        self._late = False
        self._failed: dict[WorkerId, int] = {}
        """By worker: the generation of which a sample could not be taken in, which is logged once."""
        self._on_tick = on_tick

    async def run(self) -> None:
        """Sample until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.gpus.run)
                while True:
                    await anyio.sleep(self._tick_s)
                    await self.tick()
        finally:
            self.close()

    async def tick(self) -> None:
        """Sample every worker once."""
        wanted = list(self._watched())
        if not wanted and not self._workers:
            return
        began, left = time.perf_counter(), {one.key for one in wanted}
        for _ in range(_TRIES):
            samples: list[tuple[WorkerId, WorkerSample]] = []
            job = partial(self._read, wanted, left, samples)
            async with self._reading:  # a last look is passed on behind these, since it is newer
                done = await self._readers.run(job, self._deadline_s)
                for key, sample in samples:
                    left.discard(key)
                    self._pass_on(key, sample)
                    await (
                        anyio.lowlevel.checkpoint()
                    )  # what was printed is read in it: that of one worker at a time
            if done:
                break
        self._on_tick(time.perf_counter() - began, not done)
        self._tell(late=not done)

    async def last_look(self, one: Watched) -> None:
        """Read what a worker's ranks have said since the last tick, as one of them has ended.

        Nothing of their processes is read. Returns in ``LAST_LOOK_S``, with or without it.
        """
        samples: list[WorkerSample] = []

        def job(turn: Turn) -> None:
            worker = self._workers.get(one.key)
            if worker is None or _over(worker, one):
                worker = self._add(one)
            else:
                worker.update(one)
            samples.append(worker.read_words(turn))

        with anyio.move_on_after(LAST_LOOK_S):
            async with self._reading:
                await self._readers.run(job, LAST_LOOK_S)
        for sample in samples:
            self._pass_on(one.key, sample)

    def close(self) -> None:
        """Let go of all descriptors."""
        with self._readers.alone():
            for worker in self._workers.values():
                worker.close()
            self._workers.clear()

    def _follow(self, wanted: Iterable[Watched]) -> None:
        """Add and drop samplings so that there is one for each worker that runs."""
        current = {one.key: one for one in wanted}
        for key in [key for key, worker in self._workers.items() if _over(worker, current.get(key))]:
            self._workers.pop(key).close()
            self._failed.pop(key, None)
        for key, one in current.items():
            worker = self._workers.get(key)
            if worker is None:
                self._add(one)
            elif worker.update(one):
                self._table.forget()

    def _add(self, one: Watched) -> WorkerSampling:
        """Follow a worker from now on, in place of an older generation of it."""
        if one.key in self._workers:
            self._workers.pop(one.key).close()
        # Files are looked at less often than the rest, and not of all workers in one tick.
        after_s = len(self._workers) * self._tick_s % FILES_EVERY_S
        added = WorkerSampling(one, self._facts, time.monotonic(), after_s, self._tools, self._waits)
        self._workers[one.key] = added
        self._table.forget()
        return added

    def _pass_on(self, key: WorkerId, sample: WorkerSample) -> None:
        """Give a sample to the listeners, unless the worker has ended or restarted meanwhile.

        What one worker's programs print and name may end the watch over that worker, never the agent.
        """
        if key not in self._workers or self._workers[key].watched.generation != sample.generation:
            return
        try:
            self._on_sample(sample)
        except Exception as error:  # noqa: BLE001  # whatever the sample of one worker does to its readers
            if self._failed.get(key) != sample.generation:
                log.warning("sample.failed", worker=str(key), error=repr(error), trace=traceback.format_exc())
            self._failed[key] = sample.generation

    def _read(
        self,
        wanted: Iterable[Watched],
        keys: Iterable[WorkerId],
        out: list[tuple[WorkerId, WorkerSample]],
        turn: Turn,
    ) -> None:
        """Read the process table, then worker by worker, in a reader's thread."""
        self._follow(wanted)
        workers = [self._workers[key] for key in list(keys)]
        members = {pid for worker in self._workers.values() for pid in worker.members()}
        self._waits.keep(members)
        alive, found = self._table.new(turn, members)
        for worker in workers:
            for pid in worker.settle(alive, found):
                self._table.adopt(pid)
        for worker in workers:
            out.append((worker.watched.key, worker.read(turn, self.gpus.host)))

    def _trees_of(self, job: str) -> list[Tree]:
        """The process trees of a job on this host."""
        return [tree for key, worker in self._workers.items() if key.job == job for tree in worker.trees]

    def _tell(self, *, late: bool) -> None:
        if late != self._late:
            self._late = late
            if late:
                log.warning("sampling.stalled", error="a read of /proc or of a file doesn't come back")
            else:
                log.info("sampling.resumed")


def _over(worker: WorkerSampling, now: Watched | None) -> bool:
    return now is None or now.generation != worker.watched.generation or now.shim_pid != worker.watched.shim_pid
