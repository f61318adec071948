"""Looks at every rank of one worker, twice, and puts what was found together."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import field

import anyio

from holdfast._base.dataclass import dataclass
from holdfast.hang.evidence import evidence as ev
from holdfast.hang.evidence.flight_recorder import FlightRecord
from holdfast_agent.core.launch.environment import HostFacts
from holdfast_agent.core.model.gpus import Blind
from holdfast_agent.core.proc.proc_vector import Member, below, rank_processes
from holdfast_agent.core.worker.worker import Worker
from holdfast_agent.gpu.reader import GpuSource
from holdfast_agent.shell.evidence import processes, records
from holdfast_agent.shell.evidence.blocking import Blocking
from holdfast_agent.shell.evidence.dumps import ENDED, Dumper
from holdfast_agent.shell.evidence.last_words import last_words
from holdfast_agent.shell.evidence.tools import ASKED_FOR, Tools
from holdfast_agent.shim.processes import Process


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one diagnosis, in seconds. The budget is for everything, the pause between the looks included.

    The controller acts on a hang ``holdfast.hang.thresholds.Tuning.diagnose_s`` after it asked, and what comes later
    is lost: the budget leaves time for the way there, on a host that is busy too.
    """

    interval_s: float = 5.0
    budget_s: float = 22.0
    children: int = ev.MAX_CHILDREN


@dataclass
class _Subject:
    """One process under examination."""

    process: Process | None
    pid: int
    command: str
    native: bool
    looks: list[ev.Look] = field(default_factory=list)

    def evidence(self) -> ev.ProcessEvidence:
        return ev.ProcessEvidence(self.pid, self.command, tuple(self.looks))


@dataclass
class _Rank:
    """Evidence of one rank, filled during the diagnosis; what is there when the time is up is kept."""

    rank: int
    subject: _Subject
    suspect: bool
    children: list[_Subject] = field(default_factory=list)
    children_cut: int = 0
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()
    recorder: str = ""
    flight: FlightRecord | None = None
    dump: bytes = b""
    """The recorder's dump itself, compressed."""
    notes: list[str] = field(default_factory=list)

    def evidence(self) -> ev.RankEvidence:
        return ev.RankEvidence(
            rank=self.rank,
            process=self.subject.evidence(),
            suspect=self.suspect,
            children=tuple(child.evidence() for child in self.children),
            children_cut=self.children_cut,
            stdout=self.stdout,
            stderr=self.stderr,
            recorder=self.recorder,
            flight=self.flight,
            notes=tuple(self.notes),
        )


@dataclass
class _Draft:
    """Everything found so far."""

    ranks: list[_Rank] = field(default_factory=list)
    gpus: tuple[ev.GpuEvidence, ...] = ()
    ras: str = ""
    ras_after: str = ""
    ras_of: dict[str, str] | None = None
    """Environment of the rank that answered."""
    notes: list[str] = field(default_factory=list)

    @property
    def subjects(self) -> list[_Subject]:
        """Suspects first, then the other ranks, then the children of suspects."""
        ranked = sorted(self.ranks, key=lambda rank: not rank.suspect)
        return [rank.subject for rank in ranked] + [child for rank in ranked for child in rank.children]


class Examiner:
    """One host's. Diagnoses may overlap; their tools take turns. ``facts`` gives the host as of now."""

    def __init__(
        self,
        facts: Callable[[], HostFacts],
        gpus: GpuSource,
        tools: Tools | None = None,
        limits: Limits | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.tools = tools or Tools()
        self._facts = facts
        self._gpus = gpus
        self._limits = limits or Limits()
        self._blocking = Blocking()
        self._dumper = Dumper(self.tools, self._blocking)
        self._sleep = sleep
        self._monotonic = monotonic
        self._wall = wall

    async def diagnose(
        self,
        worker: Worker,
        generation: int,
        suspects: Collection[int],
        *,
        native: bool,
        interval_s: float | None = None,
        dumps: dict[int, bytes] | None = None,
    ) -> ev.Evidence:
        """Evidence of a worker's ranks, gathered within the budget. Missing evidence never raises.

        ``suspects`` are ranks; with ``native`` their C frames are read too, for which each is stopped for up to
        some tenths of a second. Cancellation leaves no process stopped. Into ``dumps`` go the compressed dumps of
        flight recorders, by rank.
        """
        began, taken_at_s = self._monotonic(), self._wall()
        interval_s = self._limits.interval_s if interval_s is None else interval_s
        draft = _Draft()
        before = ASKED_FOR.set(worker.key.job)
        try:
            with anyio.move_on_after(self._limits.budget_s) as budget:
                await self._fill(draft, worker, generation, frozenset(suspects), native, interval_s, began)
        finally:
            ASKED_FOR.reset(before)
        if budget.cancelled_caught:
            draft.notes.append(f"not everything could be read within {self._limits.budget_s:g} s")
        if dumps is not None:
            dumps |= {rank.rank: rank.dump for rank in draft.ranks if rank.dump}
        return ev.Evidence(
            job=worker.key.job,
            worker=worker.key.worker,
            host=self._facts().name,
            generation=generation,
            taken_at_s=taken_at_s,
            took_s=self._monotonic() - began,
            interval_s=interval_s,
            ranks=tuple(rank.evidence() for rank in draft.ranks),
            gpus=draft.gpus,
            ras=draft.ras,
            ras_after=draft.ras_after,
            notes=tuple(draft.notes),
        )

    async def python_frames(self, pid: int) -> ev.Dump:
        """The Python frames of one process, which isn't stopped for it. Never raises for what the process does."""
        process = processes.find(pid)
        return ev.Dump(problem=ENDED) if process is None else await self._dumper.python(process)

    async def _fill(
        self,
        draft: _Draft,
        worker: Worker,
        generation: int,
        suspects: frozenset[int],
        native: bool,
        interval_s: float,
        began: float,
    ) -> None:
        if generation != worker.state.generation or not worker.pids:
            draft.notes.append(f"generation {generation} is not running here")
            return
        await self._find(draft, worker, suspects, native)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_gpus, draft, worker)
            tasks.start_soon(self._read_words, draft, worker, generation)
            tasks.start_soon(self._read_ras, draft)
            await self._look(draft, began)
            await self._sleep(max(0.0, interval_s - (self._monotonic() - began)))
            await self._look(draft, began)
        # Last, since it wakes threads up that the looks should find as they were.
        await self._read_records(draft)

    # --- who is there -----------------------------------------------------------------------------------------

    async def _find(self, draft: _Draft, worker: Worker, suspects: frozenset[int], native: bool) -> None:
        launched = dict(worker.pids)
        members = await self._blocking.read(processes.members, frozenset(launched.values()))
        if members is None:
            draft.notes.append("the processes below the ranks could not be read in time")
            members = []
        commands = {member.pid: ev.clipped(" ".join(member.argv)) for member in members}
        for rank, pid in sorted(rank_processes(launched, members).items()):
            suspect = rank in suspects
            found = _Rank(rank, _subject(pid, commands, native and suspect), suspect)
            if suspect:
                self._add_children(found, below(pid, members), commands)
            draft.ranks.append(found)

    def _add_children(self, rank: _Rank, children: list[Member], commands: dict[int, str]) -> None:
        rank.children = [_subject(child.pid, commands, False) for child in children[: self._limits.children]]
        rank.children_cut = len(children) - len(rank.children)

    # --- what is read -----------------------------------------------------------------------------------------

    async def _look(self, draft: _Draft, began: float) -> None:
        async with anyio.create_task_group() as tasks:
            for subject in draft.subjects:
                tasks.start_soon(self._look_at, subject, began)

    async def _look_at(self, subject: _Subject, began: float) -> None:
        at_s = self._monotonic() - began
        if subject.process is None:
            subject.looks.append(ev.Look(at_s, ev.Vector(problem=ENDED), ev.Dump(problem=ENDED)))
            return
        vector = await self._blocking.read(processes.read_vector, subject.process)
        if vector is None:
            vector = ev.Vector(problem=f"/proc did not answer within {self._blocking.late_s:g} s")
        index = len(subject.looks)
        subject.looks.append(ev.Look(at_s, vector, ev.Dump(problem="not in time")))
        if vector.state in ("Z", "X") or vector.problem == ENDED:
            subject.looks[index] = ev.Look(at_s, vector, ev.Dump(problem=ENDED))
            return
        python = await self._dumper.python(subject.process)
        subject.looks[index] = ev.Look(at_s, vector, python)
        if subject.native:
            c_frames = await self._dumper.native(subject.process, vector.state)
            subject.looks[index] = ev.Look(at_s, vector, python, c_frames)

    async def _read_gpus(self, draft: _Draft, worker: Worker) -> None:
        wanted = worker.launched.gpus if worker.launched is not None else ()
        if worker.launched is not None and not wanted:
            return
        reading, usages = await self._gpus.inventory(), await self._gpus.usage()
        if isinstance(reading, Blind):
            draft.notes.append(f"GPUs: {reading.reason}")
            return
        if isinstance(usages, Blind):
            draft.notes.append(f"GPUs: {usages.reason}")
            usages = ()
        used = {usage.uuid: usage for usage in usages}
        found = []
        for gpu in reading.gpus:
            if wanted and gpu.uuid not in wanted:
                continue
            usage = used.get(gpu.uuid)
            found.append(
                ev.GpuEvidence(
                    uuid=gpu.uuid,
                    index=gpu.index,
                    model=gpu.model,
                    memory_bytes=gpu.memory_bytes,
                    used_bytes=usage.used_bytes if usage else None,
                    pids=usage.pids if usage else None,
                    problem=gpu.problem or (usage.problem if usage else ""),
                )
            )
        missing = [uuid for uuid in wanted if uuid not in {gpu.uuid for gpu in found}]
        draft.gpus = (*found, *(ev.GpuEvidence(uuid, problem="not there any more") for uuid in missing))

    async def _read_words(self, draft: _Draft, worker: Worker, generation: int) -> None:
        for rank in draft.ranks:
            words = await self._blocking.read(last_words, self._facts(), worker.key, generation, rank.rank)
            if words is None:
                rank.notes.append("its output could not be read in time")
            else:
                rank.stdout, rank.stderr = words

    async def _read_records(self, draft: _Draft) -> None:
        async with anyio.create_task_group() as tasks:
            for rank in draft.ranks:
                tasks.start_soon(self._read_recorder, rank)
            if draft.ras_of is not None:
                draft.ras_after, _ = await records.ras(draft.ras_of)

    async def _read_recorder(self, rank: _Rank) -> None:
        process = rank.subject.process
        if process is None or processes.gone(process):
            return
        environ = await self._blocking.read(processes.environ, process.pid)
        rank.recorder, note = await records.recorder(process, environ or {}, self._blocking)
        if rank.recorder:
            rank.flight, rank.dump = await records.flight_record(process, rank.recorder, self.tools, self._blocking)
        if note:
            rank.notes.append(note)

    async def _read_ras(self, draft: _Draft) -> None:
        # One answer tells of the whole job; a rank that doesn't answer is asked for by another's. The same one is
        # asked again after the looks, which shows whether the counts in it stand still.
        for rank in draft.ranks:
            environ = await self._blocking.read(processes.environ, rank.subject.pid)
            draft.ras, note = await records.ras(environ or {})
            if draft.ras or note:
                draft.ras_of = environ if draft.ras else None
                draft.notes += [note] if note else []
                return


def _subject(pid: int, commands: dict[int, str], native: bool) -> _Subject:
    return _Subject(processes.find(pid), pid, commands.get(pid, ""), native)
