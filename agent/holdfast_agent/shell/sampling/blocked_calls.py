"""Judges one blocked system call: the descriptors in it, who is at the other end, and what a child waits for itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.samples import State
from holdfast.hang.pipeline.waits import A_SIGNAL, FUTEX, LONG_SLEEP_S, NAP_S, TIME_LIMIT, UNSEEN, Wait, WaitKind
from holdfast_agent.core.proc import descriptors, system_calls, waits
from holdfast_agent.core.proc.descriptors import Link, Lock, Sort, Tcp
from holdfast_agent.core.proc.proc_text import Call
from holdfast_agent.core.proc.system_calls import Blocked, For, Limit, TimeForm
from holdfast_agent.core.proc.waits import End, Gang
from holdfast_agent.shell.sampling.guarded_reader import Turn
from holdfast_agent.shell.sampling.holders import Holder, Sockets, Tables
from holdfast_agent.shell.sampling.processes import Gone, Member
from holdfast_agent.shell.sampling.tree import Tree

_MACHINE = os.uname().machine
_EPOLLED_MOST = 64
_FILES_MOST = 256
_CHILDREN_MOST, _THREADS_MOST = 16, 32
_POLL_S = 15.0
"""Who asks for a lock again and again sleeps no longer in between."""
ALIVE = (State.SLEEPING, State.DISK, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Subject:
    """One rank's process, with what its other ends are looked up in."""

    job: str
    tree: Tree
    member: Member
    gang: Gang
    now_s: float
    call_s: float
    # The processes looked at for this wait, each once.
    looked: set[int]
    # It has woken since the last look, and is in the same call again.
    woke: bool = False


class CallJudge:
    """Finds out what a blocked call waits for, with the tables of its host."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def judge(self, turn: Turn, subject: Subject, call: Call, before: Wait | None) -> Wait:
        """The wait of one blocked call; ``before`` is what the same thread waited for at the last look."""
        found = self._judge(turn, subject, call, before)
        left_s = (found.until_s or 0.0) - subject.call_s
        if found == Wait(WaitKind.UNKNOWN, FUTEX):
            sleeps = subject.woke
        else:
            sleeps = found.kind is WaitKind.SLEEP and not found.what and left_s <= _POLL_S
        return (self._locked_file(turn, subject) if sleeps else None) or found

    @staticmethod
    def may_poll(call: Call) -> bool:
        """Whether the call is one in which a thread passes the time until it asks for a lock again."""
        return system_calls.blocked(call, _MACHINE).waits_for in (For.CLOCK, For.FUTEX)

    @staticmethod
    def is_shared(call: Call) -> bool:
        """Whether the call is a lock's that another process may release."""
        return system_calls.blocked(call, _MACHINE).shared

    def limit_s(self, turn: Turn, subject: Subject, call: Call) -> float:
        """When the wait for a lock gives up by itself; infinite where that isn't known."""
        blocked = system_calls.blocked(call, _MACHINE)
        until_s = self._until_s(turn, subject, blocked.limit) if blocked.waits_for is For.FUTEX else None
        return math.inf if until_s is None else until_s

    def _judge(self, turn: Turn, subject: Subject, call: Call, before: Wait | None) -> Wait:
        member = subject.member
        if call.number < 0:
            # A page fault: of a file that is mapped, if it takes long.
            return Wait(WaitKind.FILE if member.state is State.DISK else WaitKind.UNKNOWN)
        blocked = system_calls.blocked(call, _MACHINE)
        match blocked.waits_for:
            case For.DESCRIPTORS:
                # Several ends may be one child's: each is asked for its wait.
                numbers = list(self._descriptors(turn, member, blocked))
                ends = [
                    self._end(turn, replace(subject, looked=set(subject.looked)), blocked, fd) for fd in numbers
                ]
                until_s = self._until_s(turn, subject, blocked.limit)
                if not ends and blocked.name.startswith(("poll", "ppoll", "select", "pselect")):
                    return Wait(WaitKind.UNKNOWN)
                found = waits.of_ends(ends, until_s)
                limited = until_s is not None and NAP_S < until_s - subject.call_s <= LONG_SLEEP_S
                if found.kind is WaitKind.CHILD and limited:
                    return Wait(WaitKind.SLEEP, f"{found.what or 'a child'}{TIME_LIMIT}")
                return found
            case For.CHILD:
                return self._child(turn, subject, blocked.number)
            case For.CLOCK:
                return Wait(WaitKind.SLEEP, until_s=self._until_s(turn, subject, blocked.limit))
            case For.SIGNAL:
                return Wait(WaitKind.SLEEP, A_SIGNAL, until_s=math.inf)
            case For.PATH:
                return Wait(WaitKind.FILE, member.read_path(turn, blocked.path))
            case For.RESUMED if before is not None and before.kind is not WaitKind.RUNNING:
                return before
            case For.RESUMED:
                return waits.by_wchan(member.wchan)
            case For.FUTEX:
                return Wait(WaitKind.UNKNOWN, FUTEX)
            case For.OTHER:
                return Wait(WaitKind.FILE if member.state is State.DISK else WaitKind.UNKNOWN)

    def _descriptors(self, turn: Turn, member: Member, blocked: Blocked) -> Iterator[int]:
        if blocked.polled is not None:
            address, count = blocked.polled
            yield from system_calls.polled(member.read_memory(turn, address, 8 * count))
        elif blocked.selected is not None:
            addresses, size = blocked.selected
            found: set[int] = set()
            for address in addresses:
                found.update(system_calls.selected(member.read_memory(turn, address, size)))
            yield from sorted(found)[: system_calls.POLL_MOST]
        elif blocked.epoll:
            info = descriptors.parse_fdinfo(member.read_table(turn, f"fdinfo/{blocked.number}", 64 << 10))
            yield from info.watched[:_EPOLLED_MOST]
        else:
            yield blocked.number

    def _until_s(self, turn: Turn, subject: Subject, limit: Limit | None) -> float | None:
        """When the clock ends the call; infinite without a limit, None where it can't be read."""
        if limit is None or limit.form is TimeForm.OTHER_CLOCK:
            return None
        if limit.form is TimeForm.MILLISECONDS:
            return subject.call_s + limit.value / 1000 if limit.value >= 0 else math.inf
        if limit.value == 0:
            return math.inf
        try:
            seconds = system_calls.seconds(subject.member.read_memory(turn, limit.value, 16), limit.form)
        except ValueError:
            return None
        return seconds if limit.form is TimeForm.MONOTONIC else subject.call_s + seconds

    # --- the other ends -------------------------------------------------------------------------------------------

    def _end(self, turn: Turn, subject: Subject, blocked: Blocked, number: int) -> End:
        link = descriptors.link_of(subject.member.read_link(turn, f"fd/{number}"))
        match link.sort:
            case Sort.SOCKET:
                return self._socket(turn, subject, link.inode)
            case Sort.PIPE:
                found = self._holders(turn, subject, Sort.PIPE, link.inode)
                return found or End(WaitKind.OUTSIDE, "a pipe of another program")
            case Sort.TERMINAL:
                return End(WaitKind.PERSON, link.path)
            case Sort.PTMX:
                return _end(self._child(turn, subject, 0))
            case Sort.EVENT:
                return End(WaitKind.LOCK)
            case Sort.TIMER:
                return End(WaitKind.SLEEP)
            case Sort.PROCESS:
                info = descriptors.parse_fdinfo(subject.member.read_table(turn, f"fdinfo/{number}", 4096))
                return _end(self._child(turn, subject, info.pid))
            case Sort.RDMA:
                return End(WaitKind.PEER, link.path)
            case Sort.FILE:
                return self._file(turn, subject, blocked, link)
            case Sort.DEVICE | Sort.EPOLL | Sort.OTHER:
                return End(WaitKind.UNKNOWN, link.path)

    def _socket(self, turn: Turn, subject: Subject, inode: int) -> End:
        table = self._tables.sockets(turn, subject.member, inode)
        if (row := table.by_inode.get(inode)) is not None:
            return self._tcp(turn, subject, table, row)
        unix = table.unix.get(inode)
        if unix is None:
            return End(WaitKind.UNKNOWN, "a socket")
        if unix.listening:
            return End(WaitKind.REQUEST, unix.path)
        peers = self._tables.unix_peer(turn, subject.member, inode)
        for peer in peers:
            if found := self._holders(turn, subject, Sort.SOCKET, peer):
                return found
        path = next((table.unix[peer].path for peer in peers if peer in table.unix and table.unix[peer].path), "")
        return End(WaitKind.OUTSIDE, path or "a Unix socket")

    def _tcp(self, turn: Turn, subject: Subject, table: Sockets, row: Tcp) -> End:
        if row.listening:
            meets = row.local[1] == subject.gang.meeting_port
            return End(WaitKind.MEETING if meets else WaitKind.REQUEST, descriptors.shown(row.local))
        accepted = row.local[1] in table.listeners
        # Both ends are in this network namespace; or it is still being connected to a listener of it.
        other = table.by_pair.get((row.remote, row.local), 0)
        if not other and row.remote[0] in (row.local[0], "127.0.0.1", "::1"):
            other = table.listeners.get(row.remote[1], 0)
        if other and (found := self._holders(turn, subject, Sort.SOCKET, other)):
            if found.kind is WaitKind.LOCK and row.remote[1] == subject.gang.meeting_port:
                # The ranks' store is in this one itself: what it asks for, a peer has yet to set.
                return End(WaitKind.PEER, f"the store at {descriptors.shown(row.remote)}", accepted)
            return replace(found, accepted=accepted)
        kind = WaitKind.PEER if subject.gang.has(row.remote) else WaitKind.OUTSIDE
        return End(kind, descriptors.shown(row.remote), accepted)

    def _holders(self, turn: Turn, subject: Subject, sort: Sort, inode: int) -> End | None:
        """The end that processes of the job hold; None where none does."""
        found = self._tables.holders(turn, subject.job, subject.tree, subject.member, sort, inode)
        return self._held(turn, subject, found) if found else None

    def _held(self, turn: Turn, subject: Subject, holders: Sequence[Holder]) -> End:
        member, rank = holders[0].member, holders[0].tree.rank_of(holders[0].member.pid)
        if member is subject.member:
            return End(WaitKind.LOCK)
        if holders[0].tree is subject.tree and rank in (None, subject.tree.rank_of(subject.member.pid)):
            return _end(self._outside(turn, subject, [holder.member for holder in holders]))
        return End(WaitKind.PEER, f"rank {rank}, {_named(member)}" if rank is not None else _named(member))

    # --- children -------------------------------------------------------------------------------------------------

    def _child(self, turn: Turn, subject: Subject, pid: int) -> Wait:
        """The wait for the end of a child, or of any of its children: for what the child waits for itself.

        A child whose wait can't be seen may work on something outside, as an upload does.
        """
        members = subject.tree.members
        known = [members[pid]] if pid in members else []
        below = known or self._children_of(subject)
        found = self._outside(turn, subject, below)
        if found.kind is not WaitKind.CHILD or len(below) != 1 or below[0].stat.state not in ALIVE:
            return found
        wait = next(self.below(turn, replace(subject, member=below[0])), None)
        if wait is None or wait.kind not in (WaitKind.UNKNOWN, WaitKind.REQUEST, WaitKind.MEETING):
            return found
        if wait.kind is WaitKind.UNKNOWN:
            return Wait(WaitKind.OUTSIDE, f"{found.what}, {UNSEEN}")
        return replace(wait, what=found.what)

    def _children_of(self, subject: Subject) -> list[Member]:
        return [one for one in list(subject.tree.members.values()) if one.parent == subject.member.pid]

    def _outside(self, turn: Turn, subject: Subject, members: Sequence[Member]) -> Wait:
        """The wait for one of these: for what one of them waits for outside the job, or for the first that wakes."""
        stopped = [one for one in members if one.stat.state is State.STOPPED]
        if stopped:
            return Wait(WaitKind.CHILD, ", ".join(_named(one) for one in stopped[:3]))
        subject.looked.add(subject.member.pid)
        asleep: list[Wait] = []
        for child in members:
            if child.stuck or child.pid in subject.looked or len(subject.looked) > _CHILDREN_MOST:
                continue
            subject.looked.add(child.pid)
            for number, wait in enumerate(self.below(turn, replace(subject, member=child))):
                # What a thread beside the main one waits for may sleep; its own sleep is no wait of the child's.
                if wait.kind is WaitKind.SLEEP and (number == 0 or wait.what):
                    asleep.append(wait)
                if wait.kind in (WaitKind.OUTSIDE, WaitKind.FILE, WaitKind.PERSON):
                    # A child further below has been named already.
                    below = wait.what if wait.what.startswith("pid ") else f"{_named(child)}: {wait.what}"
                    return replace(wait, what=below)
        what = f"{len(members)} processes below it" if members else ""
        if len(members) == 1:
            what = _named(members[0])
        wakes = [one for one in asleep if one.until_s is not None and one.until_s < math.inf]
        if wakes or (asleep and len(members) == 1):
            return replace(min(wakes or asleep, key=lambda one: one.until_s or 0.0), what=what)
        return Wait(WaitKind.CHILD, what)

    def children(self, turn: Turn, subject: Subject) -> Wait:
        """The wait for any of its children, of a process whose call doesn't say that it waits for one."""
        return self._outside(turn, subject, self._children_of(subject))

    def below(self, turn: Turn, subject: Subject) -> Iterator[Wait]:
        """The waits of a process's threads, the main one's first."""
        yield from self._waits_of(turn, subject, (0, *subject.member.read_threads(turn, _THREADS_MOST)))

    def others(self, turn: Turn, subject: Subject) -> list[Wait]:
        """The waits of all its threads but the main one."""
        return self.beside(turn, subject, subject.member.read_threads(turn, _THREADS_MOST))

    def beside(self, turn: Turn, subject: Subject, threads: Sequence[int]) -> list[Wait]:
        """The waits of these of its threads, as far as they still run; for a lock with a time limit, a sleep."""
        return list(self._waits_of(turn, replace(subject, looked=set()), threads, limits=True))

    def _waits_of(
        self, turn: Turn, subject: Subject, threads: Iterable[int], *, limits: bool = False
    ) -> Iterator[Wait]:
        member = subject.member
        try:
            for thread in threads:
                call = member.read_call(turn, thread)
                if isinstance(call, Call):
                    wait = self.judge(turn, replace(subject, woke=False), call, None)
                    until_s = self.limit_s(turn, subject, call) if limits else math.inf
                    yield wait if until_s == math.inf else Wait(WaitKind.SLEEP, until_s=until_s)
                elif not thread:
                    yield Wait(WaitKind.RUNNING)
        except Gone:
            return

    # --- files ----------------------------------------------------------------------------------------------------

    def _file(self, turn: Turn, subject: Subject, blocked: Blocked, link: Link) -> End:
        if blocked.name not in ("flock", "fcntl"):
            return End(WaitKind.FILE, link.path)
        pid = subject.member.pid
        for lock in self._tables.locks(turn):
            if pid in lock.waiting:
                return self._lock_holder(turn, subject, lock.pid, link.path)
        return End(WaitKind.FILE, link.path)

    def _lock_holder(self, turn: Turn, subject: Subject, pid: int, path: str) -> End:
        holder = self._tables.member(subject.job, pid)
        if holder is None:
            return End(WaitKind.FILE, f"{path}, locked by pid {pid}" if pid > 0 else path)
        end = self._held(turn, subject, [holder])
        return replace(end, what=f"{path}, locked by {end.what or f'pid {pid}'}")

    def _locked_file(self, turn: Turn, subject: Subject) -> Wait | None:
        """The file that a loop of sleeps waits for: one that it has open, and that another process has locked.

        SQLite and others ask for a lock again and again instead of waiting for it. Who reads a file keeps no other
        reader waiting.
        """
        own, locks = subject.member.pid, self._tables.locks(turn)
        writes = {lock.file for lock in locks if lock.pid == own and not lock.shared}
        reads = {lock.file for lock in locks if lock.pid == own and lock.shared} - writes
        others = [lock for lock in locks if lock.pid not in (own, -1)]
        locked = [lock for lock in others if not (lock.shared and lock.file in reads)]
        if not locked:
            return None
        # Of several that hold locks of one file a process of the job is named.
        locked.sort(key=lambda lock: self._tables.member(subject.job, lock.pid) is None)
        for number, path in subject.member.read_files(turn, _FILES_MOST):
            if (lock := _lock_of(turn, subject.member, number, locked)) is not None:
                end = self._lock_holder(turn, subject, lock.pid, path)
                return Wait(end.kind, end.what, polled=self._tables.member(subject.job, lock.pid) is not None)
        return None

    def locked_by_a_peer(self, turn: Turn, subject: Subject) -> Wait | None:
        """The wait for a lock that another rank holds, of a process that opens the file for each try alone."""
        for lock in self._tables.locks(turn):
            holder = self._tables.member(subject.job, lock.pid)
            if holder is None or lock.shared or holder.member is subject.member:
                continue
            end = self._held(turn, subject, [holder])
            if end.kind is WaitKind.PEER:
                files = holder.member.read_files(turn, _FILES_MOST)
                path = next((path for fd, path in files if _lock_of(turn, holder.member, fd, [lock])), "a file")
                return Wait(end.kind, f"{path}, locked by {end.what}", polled=True)
        return None


def _lock_of(turn: Turn, member: Member, number: int, locks: Sequence[Lock]) -> Lock | None:
    """The first of these locks that is one of the file behind a descriptor; None where none is."""
    info = descriptors.parse_fdinfo(member.read_table(turn, f"fdinfo/{number}", 4096))
    near = [lock for lock in locks if lock.file[2] == info.inode]
    device = member.read_device(turn, info.mount) if near else (0, 0)
    return next((lock for lock in near if lock.file[:2] == device), None)


def _end(wait: Wait) -> End:
    return End(wait.kind, wait.what, until_s=wait.until_s)


def _named(member: Member) -> str:
    stopped = ", stopped" if member.stat.state is State.STOPPED else ""
    return f"pid {member.pid} `{member.stat.name}`{stopped}"
