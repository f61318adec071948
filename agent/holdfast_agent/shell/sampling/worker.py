"""One worker while it runs: everything of it that is sampled, put together."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import WorkerId
from holdfast.hang.pipeline.frame_waits import StackWait, merged
from holdfast.hang.pipeline.samples import RankSample, State
from holdfast.hang.records.recording import LogLine, WorkerSample
from holdfast.training import progress_file
from holdfast.training.rank_progress import RankProgress
from holdfast_agent.core.gpu.signals import HostGpus, RankGpus, gpus_of, used_by
from holdfast_agent.core.launch.environment import HostFacts, log_paths, progress_dir
from holdfast_agent.core.proc.proc_text import Stat
from holdfast_agent.core.proc.process_tree import Role
from holdfast_agent.core.proc.waits import Gang
from holdfast_agent.shell.sampling.guarded_reader import Subject, Turn
from holdfast_agent.shell.sampling.output import LINES_LEAST, LINES_MOST, OutputStream
from holdfast_agent.shell.sampling.processes import Member
from holdfast_agent.shell.sampling.saved_files import SavedFileWatch
from holdfast_agent.shell.sampling.tree import DumpTools, RankReading, Tree
from holdfast_agent.shell.sampling.waits import WaitReader

FILES_EVERY_S = 10.0
PROGRESS_MOST = 1024
NAMES_MOST = 8 * PROGRESS_MOST
"""Of all kinds: ranks' exceptions, and pipes and dumps of flight recorders, are in the same folder."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A generation that runs. ``pids``: rank to what the shim started; ``ended``: rank to exit code, 128+n for a
    signal. ``fresh``: it was launched in this life of the agent. ``peers``:
    host:port of each worker of the job. ``stacks``: rank to what its frames said last. ``world_size``: processes
    that the job starts in torch's world; 0 for a worker outside it.
    """

    key: WorkerId
    generation: int
    shim_pid: int
    pids: Mapping[int, int]
    ended: Mapping[int, int]
    gpus: Sequence[str] = ()
    fresh: bool = True
    peers: tuple[str, ...] = ()
    stacks: Mapping[int, StackWait] = field(default_factory=dict)
    world_size: int = 0


class _Progress(Subject):
    """The folder in which a worker's ranks say how far they are."""


class _Names(Subject):
    """The names of a gang's hosts, which may have to be asked for."""


class WorkerSampling:
    """Samples one generation of one worker. Its calls need the turn of a reader's thread."""

    def __init__(
        self,
        watched: Watched,
        facts: HostFacts,
        now_s: float,
        files_after_s: float,
        tools: DumpTools,
        waits: WaitReader,
    ) -> None:
        self.watched = watched
        self._tools = tools
        self._waits = waits
        self._facts = facts
        self._began_s = now_s
        self._trees: dict[int, Tree] = {}
        self._streams = [
            OutputStream(path, rank, name, from_end=not watched.fresh)
            for rank in watched.pids
            for name, path in zip(
                ("out", "err"), log_paths(facts, watched.key, watched.generation, rank), strict=True
            )
        ]
        self._files = SavedFileWatch(facts.log_dir)
        self._files_due_s = now_s + files_after_s
        self._progress = _Progress()
        self._progress_dir = progress_dir(facts, watched.key, watched.generation)
        self._gpus: dict[int, RankGpus] = {}
        self._used: dict[int, tuple[str, ...]] = {}
        self._names = _Names()
        self._gang = Gang()
        self._peers: tuple[str, ...] = ()

    def close(self) -> None:
        """Let go of all descriptors."""
        for tree in self._trees.values():
            tree.close()
        for stream in self._streams:
            stream.close()

    @property
    def trees(self) -> Iterable[Tree]:
        """The process trees of its ranks."""
        return list(self._trees.values())

    def members(self) -> Iterator[int]:
        """Pids of every process that is followed."""
        for tree in self._trees.values():
            yield from tree.members

    def update(self, watched: Watched) -> bool:
        """Take newer facts on the same generation. Returns whether it has processes that weren't known."""
        known = self.watched.pids
        self.watched = watched
        for rank in watched.pids.keys() - known.keys():
            for name, path in zip(
                ("out", "err"), log_paths(self._facts, watched.key, watched.generation, rank), strict=True
            ):
                self._streams.append(OutputStream(path, rank, name, from_end=False))
        for rank in [rank for rank in self._trees if rank in watched.ended]:
            self._trees.pop(rank).close()
        return any(rank not in self._trees and rank not in watched.ended for rank in watched.pids)

    def settle(self, alive: set[int], found: Mapping[int, Stat]) -> list[int]:
        """Take in the new processes of a pass over /proc; returns the pids that are this worker's."""
        for tree in self._trees.values():
            tree.drop(alive)
        ours = []
        for rank, pid in self.watched.pids.items():
            stat = found.get(pid)
            if rank in self._trees or rank in self.watched.ended or stat is None:
                continue
            # A pid alone names nothing; the shim is the parent of what it has started.
            if self.watched.shim_pid and stat.parent != self.watched.shim_pid:
                continue
            self._trees[rank] = Tree(rank, pid, stat, self._tools)
            ours.append(pid)
        ordered = sorted(found.items(), key=lambda item: item[1].start_ticks)
        grown = True
        while grown:
            grown = False
            for pid, stat in ordered:
                owner = None if pid in ours else self._tree_of(stat)
                if owner is not None and pid not in owner.members and owner.add(pid, stat):
                    ours.append(pid)
                    grown = True
        return ours

    def _tree_of(self, stat: Stat) -> Tree | None:
        for tree in self._trees.values():
            if stat.parent in tree.members:
                return tree
        if not self.watched.shim_pid or stat.parent != self.watched.shim_pid:
            return None
        # Its parent has died and the shim has taken it in.
        return next((tree for tree in self._trees.values() if tree.owns(stat)), None)

    def read(self, turn: Turn, host: HostGpus) -> WorkerSample:
        """Read a sample of the worker now."""
        now_s = time.monotonic()
        told = self._read_progress(turn, now_s)  # first: the sample's time is that of what the program says
        if self.watched.peers != self._peers and not self._names.stuck:
            self._peers = self.watched.peers
            self._gang = turn.call(self._names, gang_at, self._peers)
        readings = self._read_trees(turn, host)
        ranks = self._rank_samples(turn, readings, host, now_s)
        lines, skipped = self._read_output(turn)
        if now_s >= self._files_due_s:
            self._files_due_s = now_s + FILES_EVERY_S
            self._files.look(turn, self._savers(), now_s)
        return self._sample(now_s, told, lines, skipped, ranks)

    def read_words(self, turn: Turn) -> WorkerSample:
        """Read what its ranks have said, as one of them has ended: a sample without ``ranks``."""
        now_s = time.monotonic()
        told = self._read_progress(turn, now_s)
        lines, skipped = self._read_output(turn)
        for stream in self._streams:
            if stream.rank in self.watched.ended:
                lines += stream.rest()
        return self._sample(now_s, told, lines, skipped)

    def _sample(
        self,
        now_s: float,
        told: tuple[RankProgress, ...],
        lines: Sequence[LogLine],
        skipped: int,
        ranks: tuple[RankSample, ...] = (),
    ) -> WorkerSample:
        return WorkerSample(
            job=self.watched.key.job,
            worker=self.watched.key.worker,
            generation=self.watched.generation,
            at_s=now_s,
            ranks=ranks,
            lines=tuple(lines),
            skipped_bytes=skipped,
            files=self._files.sample,
            progress=told,
            own_world=self._own_world(),
        )

    def _read_output(self, turn: Turn) -> tuple[list[LogLine], int]:
        """New lines of all streams, and how many bytes were skipped."""
        lines: list[LogLine] = []
        skipped = 0
        most = max(LINES_LEAST, LINES_MOST // max(1, len(self._streams)))
        for stream in self._streams:
            more, passed_over = stream.read(turn, most)
            lines += more
            skipped += passed_over
        return lines, skipped

    def _own_world(self) -> int:
        if self.watched.world_size <= 1:
            return 0
        return max((tree.whole_world for tree in self._trees.values()), default=0)

    def _read_trees(self, turn: Turn, host: HostGpus) -> dict[int, list[RankReading]]:
        on_gpu = host.on_gpu
        return {rank: tree.read(turn, on_gpu) for rank, tree in self._trees.items()}

    def _rank_samples(
        self, turn: Turn, readings: Mapping[int, list[RankReading]], host: HostGpus, now_s: float
    ) -> tuple[RankSample, ...]:
        watched, samples = self.watched, []
        ranks = sorted(watched.pids.keys() | watched.ended.keys())
        count = sum(max(1, len(readings.get(rank, ()))) for rank in ranks)
        index = 0
        for rank in ranks:
            if rank in watched.ended:
                samples.append(RankSample(now_s, rank, exit_code=watched.ended[rank]))
            elif not readings.get(rank):
                samples.append(RankSample(now_s, rank))
            for offset, reading in enumerate(readings.get(rank, ())):
                samples.append(self._rank_sample(turn, rank, reading, index + offset, count, host, now_s))
            index += max(1, len(readings.get(rank, ())))
        return tuple(samples)

    def _rank_sample(
        self, turn: Turn, rank: int, reading: RankReading, index: int, count: int, host: HostGpus, now_s: float
    ) -> RankSample:
        uuids = self._gpus_of(reading, index, count, host)
        adder = self._gpus.setdefault(reading.rank, RankGpus(self._began_s))
        gpu, blind = adder.sample(uuids, host, now_s)
        waits = reading.process is not None and reading.process.state is State.DISK
        tree = self._trees[rank]
        stack = self.watched.stacks.get(reading.rank)
        wait = self._waits.read(turn, self.watched.key.job, tree, reading, self._gang, now_s, stack)
        return RankSample(
            at_s=now_s,
            rank=reading.rank,
            process=reading.process,
            children=reading.children,
            helpers=reading.helpers,
            gpu=gpu,
            gpu_blind=blind,
            paused_by_us=reading.paused_by_us,
            mount=tree.mount(turn, reading.pids) if waits else "",
            wait=merged(wait, stack) if _lives(reading) else None,
            pid=reading.pid,
        )

    def _gpus_of(self, reading: RankReading, index: int, count: int, host: HostGpus) -> tuple[str, ...]:
        if not host.borrowed:
            return gpus_of(self.watched.gpus, index, count, reading.pids, host.contexts)
        # One that falls off the bus is no longer listed with who holds it.
        uuids = used_by(reading.pids, host.contexts) or self._used.get(reading.rank, ())
        self._used[reading.rank] = uuids
        return uuids

    def _savers(self) -> Iterator[Member]:
        for tree in list(self._trees.values()):
            yield from [member for member in tree.members.values() if member.role is not Role.PARENT]

    def _read_progress(self, turn: Turn, now_s: float) -> tuple[RankProgress, ...]:
        if self._progress.stuck:
            return ()
        boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            names = turn.call(self._progress, _names, self._progress_dir)
        except OSError:
            return ()
        told = []
        for name in names:
            number = name.removeprefix("r").removesuffix(".progress")
            if not (number.isascii() and number.isdigit() and len(number) < 10):
                continue
            said = turn.call(self._progress, progress_file.read, f"{self._progress_dir}/{name}", int(number))
            if said is not None:
                # A report from the future is one of now: the worker can write anything there.
                told.append(replace(said, at_s=now_s - max(0.0, boot_s - said.at_s)))
        return tuple(sorted(told, key=lambda said: said.rank))


def _names(folder: str) -> list[str]:
    """Some names in the worker's own folder, which may hold any number, and other things. Raises ``OSError``."""
    with os.scandir(folder) as entries:
        seen = (entry.name for entry in itertools.islice(entries, NAMES_MOST))
        return list(itertools.islice((name for name in seen if name.endswith(".progress")), PROGRESS_MOST))


def _lives(reading: RankReading) -> bool:
    """Whether its process was read, and is neither stopped nor dead."""
    return reading.process is not None and reading.process.state not in (State.STOPPED, State.TRACED, State.ZOMBIE)


def gang_at(peers: Iterable[str]) -> Gang:
    """The addresses behind ``host:port`` of the ranks' meeting point and of each worker, in this order.

    A name that can't be resolved is left out.
    """
    hosts: set[str] = set()
    ports: set[int] = set()
    peers = tuple(peers)
    for peer in peers:
        host, _, port = peer.rpartition(":")
        ports.update({int(port)} if port.isdigit() else ())
        with contextlib.suppress(OSError, UnicodeError):
            hosts.update(
                str(info[4][0]) for info in socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
            )
    meeting = peers[0].rpartition(":")[2] if peers else ""
    meeting_port = int(meeting) if meeting.isdigit() else 0
    return Gang(frozenset(hosts), frozenset(ports), several=len(peers) > 2, meeting_port=meeting_port)
