"""The process tree below one process that the shim started: ranks, children, helpers, and their counters."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable
from typing import Protocol

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.launcher import is_launcher, stays_on_its_host
from holdfast.hang.pipeline.samples import ProcessSample, State, TreeSample
from holdfast_agent.core.proc import process_tree
from holdfast_agent.core.proc.proc_text import Stat, World
from holdfast_agent.core.proc.process_counters import Counters, TreeTally
from holdfast_agent.core.proc.process_tree import Relative, Role
from holdfast_agent.shell.sampling.guarded_reader import Turn
from holdfast_agent.shell.sampling.processes import Gone, Member

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
MEMBERS_MOST = 512
"""Processes followed per rank that the shim started; a tree that grows beyond is followed in part."""
_OPEN_MOST = 64
"""Processes per tree whose files are kept open; the others cost twice as much to read."""


@dataclass(frozen=True, slots=True)
class RankReading:
    """A reading of one rank process; ``process`` is None where it couldn't be read.

    ``paused_by_us``: a dump tool of the agent had it stopped, at that moment or since the reading before.
    """

    rank: int
    pid: int
    pids: frozenset[int]
    process: ProcessSample | None
    children: TreeSample
    helpers: TreeSample
    paused_by_us: bool = False


class DumpTools(Protocol):
    """The agent's own tools that stop a process while they read its C frames."""

    def is_ours(self, pid: int) -> bool:
        """Whether a tracer is one of them."""

    def stops(self, pid: int) -> bool:
        """Whether one of them is at work on this process, or was a moment ago."""

    def stopped_since(self, pid: int, at_s: float) -> bool:
        """Whether one of them has stopped this process at some time since then, on the monotonic clock."""


class _NoTools:
    def is_ours(self, pid: int) -> bool:
        return False

    stops = is_ours

    def stopped_since(self, pid: int, at_s: float) -> bool:
        return False


NO_TOOLS: DumpTools = _NoTools()


class _Book:
    """Totals for one rank process."""

    def __init__(self) -> None:
        self.storage_bytes = 0
        self.children = TreeTally(TICK_S)
        self.helpers = TreeTally(TICK_S)


class Tree:
    """The processes below (and with) one process that the shim started as ``rank``."""

    def __init__(self, rank: int, pid: int, stat: Stat, tools: DumpTools) -> None:
        self.rank = rank
        self.root = pid
        self.members: dict[int, Member] = {}
        self._books: dict[int, _Book] = {}
        self._numbers: dict[int, int] = {}
        self._stays_on_its_host = False
        self._is_alone = False
        self._changed = True
        self._on_gpu: frozenset[int] = frozenset()
        self._tools = tools
        # When it was read last, and this time.
        self._before_s = self._read_s = time.monotonic()
        self.add(pid, stat)

    def close(self) -> None:
        """Let go of all descriptors."""
        for member in self.members.values():
            member.close()
        self.members.clear()

    def add(self, pid: int, stat: Stat) -> bool:
        """Add a process to the tree; False where there are too many."""
        if len(self.members) >= MEMBERS_MOST:
            return False
        self.members[pid] = Member(pid, stat, keep_open=len(self.members) < _OPEN_MOST)
        self._changed = True
        return True

    def owns(self, stat: Stat) -> bool:
        """Whether a process whose parent has died was one of this tree's: it is still in the root's group."""
        return self.root in (stat.group, stat.session)

    def drop(self, alive: Collection[int]) -> None:
        """Forget processes that have ended; their parents' counters include them once they are reaped."""
        for pid in [pid for pid in self.members if pid not in alive]:
            self._remove(pid)

    def _remove(self, pid: int) -> None:
        member = self.members.pop(pid)
        parent = self.members.get(member.parent)
        if parent is not None:
            parent.account.credit(member.account.last)
        member.close()
        self._changed = True

    def read(self, turn: Turn, on_gpu: frozenset[int]) -> list[RankReading]:
        """Read every process, and add up what each rank's tree has done. Ranks in the order of their numbers."""
        self._before_s, self._read_s = self._read_s, time.monotonic()
        seen: dict[int, Counters] = {}
        for member in list(self.members.values()):
            if member.stuck:
                continue
            try:
                seen[member.pid] = self._look(turn, member)
            except Gone:
                if self.members.get(member.pid) is member:
                    self._remove(member.pid)
        ours = frozenset(on_gpu.intersection(self.members))
        if self._changed or ours != self._on_gpu:
            self._on_gpu = ours
            self._assign(turn)
        # Only now, when every child that has ended is known to have: see core.tally.
        for pid, counters in seen.items():
            if pid in self.members:
                self._note(self.members[pid], counters)
        return [self._reading(turn, pid, seen) for pid in self._numbers if pid in self.members]

    def _look(self, turn: Turn, member: Member) -> Counters:
        name = member.stat.name
        stat = member.read_stat(turn)
        # A program that was just forked may become another one at once; a later change shows in its name.
        if (member.looks < 2 or stat.name != name) and stat.state is not State.ZOMBIE:
            command = member.read_command(turn)
            if command != member.command:
                member.command, member.world_known, self._changed = command, False, True
        member.looks += 1
        member.no_io = member.no_io or stat.state is State.ZOMBIE
        return member.read_counters(turn)

    def _note(self, member: Member, counters: Counters) -> None:
        growth = member.account.take(counters)
        book = self._books.get(member.owner)
        if book is None:
            return
        match member.role:
            case Role.RANK:
                book.storage_bytes += growth.storage_bytes
                book.children.add_ticks(growth.reaped_ticks)
            case Role.CHILD:
                book.children.add(growth)
            case Role.HELPER:
                # What a companion writes is what others print (tee), or goes on whatever they do.
                works = process_tree.works(member.command)
                book.helpers.add(growth if works else growth._replace(written=0))

    def _process(self, turn: Turn, member: Member, book: _Book) -> tuple[ProcessSample, bool]:
        """A sample of a rank process, and whether a dump tool of ours has it stopped, or had since the last one."""
        stat = member.stat
        main = None if stat.state is State.ZOMBIE else member.read_main_thread(turn)
        # State and tracer of one read: between two reads a tool may let go, and a stop without a tracer is a signal's.
        state = main.state if main else stat.state
        ours = main is not None and main.tracer != 0 and self._tools.is_ours(main.tracer)
        paused = ours and state is State.TRACED
        held = paused or (self._tools.stops(member.pid) and State.STOPPED in (state, member.state))
        if not held:
            member.state = state
            member.wchan = "" if state in (State.RUNNING, State.ZOMBIE) else member.read_wchan(turn)
        core = None if stat.state is State.ZOMBIE else member.read_core_time(turn)
        sample = ProcessSample(
            state=member.state,
            cpu_s=stat.own_ticks * TICK_S,
            main_switches=main.switches if main else None,
            storage_bytes=book.storage_bytes,
            major_faults=stat.major_faults,
            wchan=member.wchan,
            traced=main is not None and main.tracer != 0 and not ours,
            ran_s=core.ran_s if core is not None else None,
            queued_s=core.queued_s if core is not None else None,
            main_written=None if stat.state is State.ZOMBIE else member.read_main_written(turn),
        )
        return sample, paused or self._tools.stopped_since(member.pid, self._before_s)

    def rank_of(self, pid: int) -> int | None:
        """The rank that a process belongs to; None for a launcher above the ranks."""
        member = self.members.get(pid)
        return self._numbers.get(member.owner) if member is not None else None

    @property
    def whole_world(self) -> int:
        """How many ranks are in a world that began and ends below this process; 0 where there is none.

        1 for torchrun that stays on its host, too: it may wait for other workers in vain; and for a program whose
        environment says that it is alone, where it takes the place of the script that the rank was.
        """
        seats: dict[int, set[int]] = {}
        for member in self.members.values():
            world = member.world
            if member.pid != self.root and world.seat is not None and world.size is not None:
                seats.setdefault(world.size, set()).add(world.seat)
        whole = max((size for size, taken in seats.items() if size and len(taken) >= size), default=0)
        return whole or int(self._stays_on_its_host or self._is_alone)

    def mount(self, turn: Turn, pids: Iterable[int]) -> str:
        """The mount that one of these waits for in uninterruptible sleep; empty where that isn't known."""
        for pid in pids:
            member = self.members.get(pid)
            if member is None or member.stuck or member.stat.state is not State.DISK:
                continue
            try:
                if found := member.read_mount(turn):
                    return found
            except Gone:
                continue
        return ""

    def _reading(self, turn: Turn, pid: int, seen: Collection[int]) -> RankReading:
        book, member, process, ours = self._books[pid], self.members[pid], None, False
        if pid in seen and not member.stuck:
            try:
                process, ours = self._process(turn, member, book)
            except Gone:
                process = None
        pids = frozenset(one.pid for one in self.members.values() if one.owner == pid)
        return RankReading(
            self._numbers[pid], pid, pids, process, book.children.sample(), book.helpers.sample(), ours
        )

    def _assign(self, turn: Turn) -> None:
        """Assign every process of the tree its role again."""
        parts = process_tree.parts(self.root, self.rank, self._relatives(turn))
        self._changed = False
        for pid, part in parts.items():
            member = self.members[pid]
            book = self._books.setdefault(part.owner, _Book()) if part.owner else None
            if book is not None and (part.role, part.owner) != (member.role, member.owner):
                if part.role is Role.CHILD:
                    book.children.spawned()
                elif part.role is Role.HELPER:
                    book.helpers.spawned()
            member.role, member.owner = part.role, part.owner
        ranks = process_tree.ranks_of(parts)
        self._numbers = {pid: parts[pid].rank for pid in ranks}
        self._books = {pid: self._books[pid] for pid in self._numbers}

    def _relatives(self, turn: Turn) -> dict[int, Relative]:
        # The environment counts only below a launcher or a shell, and is read once per program.
        root = self.members.get(self.root)
        shell = root is not None and process_tree.is_parent(root.command)
        launched = shell or any(is_launcher(member.command) for member in self.members.values())
        self._stays_on_its_host = launched and any(
            stays_on_its_host(member.command, nested=False) for member in self.members.values()
        )
        if root is not None and not root.world_known and not root.stuck:
            # As a script's `exec` leaves it: what a site or another scheduler says of MPI is no doing of the program's.
            try:
                self._is_alone = root.read_world(turn, by_torch=True).size == 1
            except Gone:
                self._is_alone = False
            root.world_known = True
        for member in list(self.members.values()) if launched else ():
            if not member.world_known and member.pid != self.root and not member.stuck:
                try:
                    member.world = member.read_world(turn)
                except Gone:
                    member.world = World()
                member.world_known = True
        return {
            member.pid: Relative(
                pid=member.pid,
                parent=member.parent,
                start_ticks=member.stat.start_ticks,
                command=member.command,
                name=member.stat.name,
                rank=member.world.rank if shell else None,
                on_gpu=member.pid in self._on_gpu,
            )
            for member in self.members.values()
        }
