"""Tables of the host that say who is at the other end: sockets, holders of descriptors, holders of file locks.

Read only for a rank that stands still, and kept for some seconds: on a host whose ranks all hang each table is read
once for all of them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.proc import descriptors
from holdfast_agent.core.proc.descriptors import Lock, Sort, Tcp, Unix
from holdfast_agent.shell.sampling.guarded_reader import Subject, Turn
from holdfast_agent.shell.sampling.processes import Member, read_once
from holdfast_agent.shell.sampling.tree import Tree
from holdfast_agent.shell.sampling.unix_peers import peer_of

KEPT_S = 10.0
FRESH_S = 2.0
"""A table that lacks what is looked for is read again once it is so old."""
_TABLE_BYTES = 4 << 20
_FDS_MOST = 4096
_FILES = ("tcp", "tcp6", "udp", "udp6")

Held = Counter[tuple[Sort, int]]


@dataclass
class Sockets:
    """The sockets of one network namespace."""

    read_s: float
    by_inode: dict[int, Tcp] = field(default_factory=dict)
    by_pair: dict[tuple[tuple[str, int], tuple[str, int]], int] = field(default_factory=dict)
    listeners: dict[int, int] = field(default_factory=dict)
    """Port → inode."""
    unix: dict[int, Unix] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process of the job that holds the other end."""

    tree: Tree
    member: Member


class Tables(Subject):
    """The host's tables, as far as the members of jobs need them. ``trees`` gives those of a job on this host."""

    def __init__(self, trees: Callable[[str], Iterable[Tree]]) -> None:
        self._trees = trees
        self._sockets: dict[str, Sockets] = {}
        self._held: dict[int, tuple[float, Held]] = {}
        self._locks: tuple[float, list[Lock]] = (-KEPT_S, [])
        self._own_network = ""

    def forget(self, pid: int) -> None:
        """Drop what was read of a process."""
        self._held.pop(pid, None)

    # --- sockets --------------------------------------------------------------------------------------------------

    def sockets(self, turn: Turn, member: Member, inode: int) -> Sockets:
        """The sockets of a member's network namespace, new enough to know this one."""
        now_s, network = time.monotonic(), member.read_link(turn, "ns/net")
        table = self._sockets.get(network)
        if table is not None:
            age_s = now_s - table.read_s
            known = inode in table.by_inode or inode in table.unix
            if age_s < (KEPT_S if known else FRESH_S):
                return table
        table = self._sockets[network] = Sockets(now_s)
        for old in [key for key, one in self._sockets.items() if now_s - one.read_s > 6 * KEPT_S]:
            del self._sockets[old]
        for name in _FILES:
            for row in descriptors.parse_tcp(member.read_table(turn, f"net/{name}", _TABLE_BYTES)):
                table.by_inode[row.inode] = row
                table.by_pair[row.local, row.remote] = row.inode
                if row.listening:
                    table.listeners[row.local[1]] = row.inode
        for one in descriptors.parse_unix(member.read_table(turn, "net/unix", _TABLE_BYTES)):
            table.unix[one.inode] = one
        return table

    def unix_peer(self, turn: Turn, member: Member, inode: int) -> tuple[int, ...]:
        """Inodes that may be the other end of a Unix socket: one where the kernel tells, else its neighbours."""
        if not self._own_network:
            self._own_network = os.readlink("/proc/self/ns/net")
        if member.read_link(turn, "ns/net") == self._own_network:
            peer = turn.call(self, peer_of, inode)
            if peer:
                return (peer,)
        # The two ends of a socketpair are numbered one after the other.
        return (inode + 1, inode - 1)

    # --- who holds a descriptor -----------------------------------------------------------------------------------

    def holders(self, turn: Turn, job: str, tree: Tree, near: Member, sort: Sort, inode: int) -> list[Holder]:
        """The processes that hold the other end: of the member's own tree if possible, else of another rank's.

        ``near`` itself counts only where it alone holds both ends.
        """
        for one in (tree, *(other for other in self._trees(job) if other is not tree)):
            members = [member for member in list(one.members.values()) if member is not near and not member.stuck]
            if found := [Holder(one, member) for member in members if (sort, inode) in self._fds(turn, member)]:
                return found
        needed = 2 if sort is Sort.PIPE else 1
        return [Holder(tree, near)] if self._fds(turn, near)[sort, inode] >= needed else []

    def _fds(self, turn: Turn, member: Member) -> Held:
        now_s = time.monotonic()
        read_s, held = self._held.get(member.pid, (-KEPT_S, Counter()))
        if now_s - read_s >= KEPT_S:
            try:
                held = turn.call(member, _held_by, member.pid)
            except OSError:
                held = Counter()
            self._held[member.pid] = now_s, held
        return held

    # --- file locks -----------------------------------------------------------------------------------------------

    def locks(self, turn: Turn) -> list[Lock]:
        """All file locks of the host."""
        now_s = time.monotonic()
        if now_s - self._locks[0] >= FRESH_S:
            found: list[Lock] = []
            with contextlib.suppress(OSError):
                found = descriptors.parse_locks(turn.call(self, read_once, "/proc/locks", _TABLE_BYTES))
            self._locks = now_s, found
        return self._locks[1]

    def member(self, job: str, pid: int) -> Holder | None:
        """The process of that pid, if it is one of the job's."""
        for tree in self._trees(job):
            if pid in tree.members:
                return Holder(tree, tree.members[pid])
        return None


def _held_by(pid: int) -> Held:
    """The sockets and pipes that a process has open, and how often."""
    held: Held = Counter()
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for count, entry in enumerate(entries):
            if count >= _FDS_MOST:
                break
            with contextlib.suppress(OSError):
                link = descriptors.link_of(os.readlink(entry.path))
                if link.inode:
                    held[link.sort, link.inode] += 1
    return held
