"""Ranks that outlive their generation: they leave its work, wait, and become ranks of the next one.

Theory of operation. Ranks of a job that asks for it find the name of a socket in their environment. A program that can
be called again (``holdfast.restartable``) connects there while it trains; the kernel says which process that is, and
only a rank's own is heard. A stop that another generation follows sends such ranks a word in place of TERM. Each leaves
its function within the time that it has named itself, ends its child processes, and says so. Then

- *its end is recorded*, without a status, since there is none: the rank of this generation is over, its process is not;
- *it is no part of the generation any more*: not signalled with it, in a cgroup of its own, and the proof that the
  generation is empty names it: the kernel's list of our children has survivors and the keeper, and they have none;
- *it does nothing*: its main thread waits at the socket. At the launch it is handed the new environment and output, as
  a parked process is, and goes on when the journal names it as the next generation's.

What is late, or has left a process behind, is stopped as ever. Survivors end with any other stop, and with their shim.
The next generation shares the old one's /dev/shm where there are any: a process of several threads can't change it.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from _socket import AF_UNIX, MSG_DONTWAIT, SO_PEERCRED, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket

from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.processes import Process, printable, read_small
from holdfast_agent.shim.walls import namespaces
from holdfast_agent.shim.walls.cgroup import Cgroup
from holdfast_agent.shim.warm.parked_ranks import varies
from holdfast_agent.shim.warm.release import Parked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from holdfast_agent.shim.generation import Generation
    from holdfast_agent.shim.launch import Identity, Plan
    from holdfast_agent.shim.walls.namespaces import Room

VARIABLE = b"HOLDFAST_IN_PROCESS"
BACKLOG = 128
LINE_BYTES = 512
LOOKS = 8  # at a process whose threads end meanwhile
LONGEST_S = 60.0  # that a rank may ask for; the stop's own grace ends it in any case


class Link:
    """A rank's connection: what it has said so far, and how long leaving takes it at most."""

    def __init__(self, pid: int, socket: Socket) -> None:
        self.pid, self.socket, self.said, self.within_s = pid, socket, b"", 0.0


class Survivor(Parked):
    """A process that has left its generation, and the rank that it was. ``before`` is how that was started."""

    survived = True

    def __init__(self, rank: int, before: Plan, pid: int, link: Socket) -> None:
        super().__init__(before, pid, link, {})
        self.rank, self.before = rank, before
        self.start_ticks = Process(pid).start_ticks

    def given(self) -> bytes:
        """New and changed variables, and the names of those that are no more: the rest is the program's own."""
        new, old = self.plan.env, self.before.env
        changed = b"".join(b"%s=%s\0" % item for item in new.items() if old.get(item[0]) != item[1])
        return changed + b"".join(name + b"\0" for name in old.keys() - new.keys())


class Survivors:
    """The survivors of one worker. ``watch`` and ``unwatch`` are for its sockets. Raises OSError."""

    def __init__(self, directory: int, watch: Callable[[int], None], unwatch: Callable[[int], None]) -> None:
        self._directory, self._watch, self._unwatch = directory, watch, unwatch
        self._listener = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
        self._listener.bind(
            ""
        )  # a name that the kernel chooses, in no directory: containers and accounts see it, too
        self._listener.listen(BACKLOG)
        self.name = b"@" + self._listener.getsockname()[1:]
        watch(self._listener.fileno())
        self._links: dict[int, Link] = {}  # by descriptor
        self.waiting: dict[int, Survivor] = {}  # by rank
        self.room: Room | None = None
        self._cgroup: Cgroup | None = None
        self._identity: Identity | None = None
        self.problem = ""  # why one has not survived

    # -- while a generation runs

    def hears(self, fd: int) -> bool:
        """Whether the descriptor is of one of its sockets."""
        return fd == self._listener.fileno() or fd in self._links

    def hear(self, fd: int, generation: Generation) -> bool:
        """Take in what a rank says. Returns whether one has become a survivor, or will not: then its exit is due."""
        if fd == self._listener.fileno():
            self._accept(generation)
            return False
        link = self._links[fd]
        try:
            data = link.socket.recv(LINE_BYTES, MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        *lines, link.said = (link.said + data).split(b"\n")
        if not data or len(link.said) > LINE_BYTES:
            self._drop(fd)
        for line in lines:
            word, _, more = line.partition(b" ")
            if word == b"within":
                try:
                    link.within_s = min(max(0.0, float(more)), LONGEST_S)
                except ValueError:
                    self._drop(fd)
            elif word == b"unwound" and fd in self._links:
                return self._take(link, generation)
            elif word == b"no":
                return self._refuse(link, generation, printable(more[:200]))
        return False

    def _accept(self, generation: Generation) -> None:
        try:
            for _ in range(BACKLOG):  # any account may connect, and faster than this goes on
                fd, _ = self._listener._accept()  # type: ignore[attr-defined]
                socket = Socket(fileno=fd)
                pid = int.from_bytes(socket.getsockopt(SOL_SOCKET, SO_PEERCRED, 4), sys.byteorder)
                if pid in generation.live:
                    for former in [each for each in self._links.values() if each.pid == pid]:
                        self._drop(former.socket.fileno())  # of an earlier call in this generation
                    self._links[fd] = Link(pid, socket)
                    self._watch(fd)
                else:
                    socket.close()
        except OSError:
            pass  # no more of them, or no descriptor left

    def _drop(self, fd: int) -> None:
        if link := self._links.pop(fd, None):
            self._unwatch(fd)
            link.socket.close()

    # -- at its end

    def ask(self, generation: Generation, hung: Collection[int]) -> dict[int, float]:
        """Send the word to ranks that can leave, but to none that hung; by pid, how long each may take."""
        asked = {}
        for link in list(self._links.values()):
            rank = generation.live.get(link.pid)
            if rank is None or not link.within_s:
                continue
            if rank.rank in hung:
                self.problem = f"rank {rank.rank} hung"
                continue
            try:
                link.socket.send(b"u", MSG_DONTWAIT)
            except OSError:
                continue
            asked[link.pid] = link.within_s
        if asked:
            hit("shim.unwind.after")
        return asked

    def _take(self, link: Link, generation: Generation) -> bool:
        """The process is the rank's no more, if nothing of it is left but itself."""
        rank = generation.live.get(link.pid)
        if rank is None or not generation.stop or link.pid not in generation.stop.spared:
            self._drop(link.socket.fileno())
            return False
        number = generation.number + 1
        try:
            if children_of(link.pid):
                return self._refuse(link, generation, "it has left a process behind")
            if generation.cgroup:
                worker = os.path.dirname(generation.cgroup.path)
                self._cgroup = self._cgroup or Cgroup(f"{worker}/s{number}", 0, 0)
                self._cgroup.take(link.pid)
            if generation.room and self.room is None:
                self.room = namespaces.carry(generation.room, number, self._directory)
            plan, self._identity = generation.plans[rank.rank]
            survivor = Survivor(rank.rank, plan, link.pid, link.socket)
        except OSError as error:
            return self._refuse(link, generation, error.strerror or "its socket fails")
        self._links.pop(link.socket.fileno())
        self._unwatch(link.socket.fileno())
        self.waiting[rank.rank] = survivor
        generation.apart.add(link.pid)
        del generation.live[link.pid]
        generation.unwound(rank)
        hit("shim.survivor.after")
        return True

    def _refuse(self, link: Link, generation: Generation, why: str) -> bool:
        """Have the process end as any other rank."""
        rank = generation.live.get(link.pid)
        self.problem = f"rank {rank.rank if rank else '?'} could not go on in its process: {why}"
        generation.give_up([link.pid])
        self._drop(link.socket.fileno())
        return False

    def reaped(self, pid: int, generation: Generation) -> int | None:
        """Take note of the end of a child: the rank that it was, where it had survived and was waiting."""
        for rank, each in self.waiting.items():
            if each.pid == pid:
                del self.waiting[rank]
                each.link.close()
                generation.apart.discard(pid)
                return rank
        return None

    def pids(self) -> list[int]:
        """Pids of all that wait."""
        return sorted(each.pid for each in self.waiting.values())

    def are_idle(self) -> bool:
        """Whether none of those that wait has a child, and each is still the process that it was."""
        try:
            return all(
                not children_of(each.pid) and Process(each.pid).start_ticks == each.start_ticks
                for each in self.waiting.values()
            )
        except OSError:
            return False

    # -- at the next launch

    def fit(self, plans: Sequence[Plan], identity: Identity, room: Room | None) -> str:
        """Why they can't be the ranks of an order; empty where they can."""
        known = self._identity
        if known is None or vars(identity) != vars(known):
            return "its account has changed"
        if not room.is_same(self.room) if room else self.room:
            return "its /dev/shm has changed"
        if not self.are_idle():
            return "a process that waits has started something"
        for plan in plans:
            if not (each := self.waiting.get(plan.rank)):
                continue
            if plan.argv != each.before.argv or plan.cwd != each.before.cwd:
                return "its command has changed"
            for name in sorted(plan.env.keys() | each.before.env.keys()):
                if not varies(name) and plan.env.get(name) != each.before.env.get(name):
                    return f"{printable(name)} has changed"
        return ""

    def let_go(self, plans: Sequence[Plan]) -> dict[int, Parked]:
        """Give the caller those that are to be ranks, by rank, and end the others."""
        wanted = {plan.rank: plan for plan in plans}
        found: dict[int, Parked] = {}
        for rank in list(self.waiting):
            if rank in wanted:
                each = self.waiting.pop(rank)
                each.plan = wanted[rank]
                found[rank] = each
        self.end()
        return found

    def end(self) -> list[int]:
        """Kill those that wait; they are this process's children until they are reaped."""
        pids = self.pids()
        for each in self.waiting.values():
            os.kill(each.pid, signal.SIGKILL)  # not reaped, so it is ours
            each.link.close()
        self.waiting.clear()
        if self.room:
            self.room.close()
            self.room = None
        return pids

    def leave_cgroup(self) -> None:
        """Remove the cgroup in which they have waited: they have been moved, or have ended."""
        if self._cgroup:
            self._cgroup.close()
            self._cgroup = None


def children_of(pid: int) -> list[int]:
    """Children of all threads of a process. Raises OSError where it is gone, or its threads come and go."""
    for _ in range(LOOKS):
        found: list[int] = []
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                found += [int(child) for child in read_small(f"/proc/{pid}/task/{task}/children").split()]
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread has ended: its children are those of another, maybe of one that was looked at
        return found
    raise OSError(errno.EAGAIN, "its threads come and go")
