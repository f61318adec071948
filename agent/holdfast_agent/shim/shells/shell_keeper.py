"""The process between the agent's socket and a user's shell: see `rank_shell`."""

from __future__ import annotations

import os
import select
import signal

from holdfast_agent.shim import terminal
from holdfast_agent.shim.keepers import frame, let_go
from holdfast_agent.shim.processes import kill_descendants, printable
from holdfast_agent.shim.shells.rank_shell import Order, Surroundings, become
from holdfast_agent.shim.walls.cgroup import Cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

READ_MOST = 32 << 10
UNSENT_MOST = 256 << 10
"""Bytes that wait for the agent before no more output is read."""
KILL_FASTEST_S, KILL_SLOWEST_S = 0.01, 1.0
STOPPED = "the ranks beside it were stopped"
SHIM_DIED = "the shim of its worker has ended"


def keep(connection: int, order: Order, surroundings: Surroundings) -> NoReturn:
    """In the shim's child: run the shell to its end, and end all that it leaves."""
    try:
        shim = os.getppid()
        held = {connection}
        if surroundings.room:
            held |= {surroundings.room.mounts, surroundings.room.ipc}
        let_go(held)
        Keeper(connection, order, surroundings, shim).run()
    finally:
        os._exit(0)


class Keeper:
    """The loop between the socket and the shell. Signals are handled as the shim handles them, but for TERM."""

    def __init__(self, connection: int, order: Order, surroundings: Surroundings, shim: int) -> None:
        self.order, self.surroundings, self.shim = order, surroundings, shim
        self.connection = connection
        os.set_blocking(connection, False)
        self.received, self.unsent, self.pending = bytearray(), bytearray(), bytearray()
        self.ends_input = False
        self.leader = -1
        self.status: int | None = None
        self.is_told_to_end = self.is_alone = False
        self.wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.input = self.window = -1
        self.outputs: dict[int, bytes] = {}
        self.cgroup = self._cgroup()

    def _cgroup(self) -> Cgroup | None:
        """One for this shell alone, within the bounds of all of them."""
        of_all = self.surroundings.cgroup
        try:
            self.surroundings.cgroup = Cgroup(f"{of_all.path}/{os.getpid()}", 0, 0) if of_all else None
        except OSError:
            self.surroundings.cgroup = None
        return self.surroundings.cgroup

    def _on_term(self, *_: object) -> None:
        self.is_told_to_end = True

    def run(self) -> None:
        """Return once the shell and all that it has started are gone."""
        problem = "its keeper failed"
        try:
            if os.getppid() != self.shim:
                self.is_told_to_end = True  # it died before it could be watched
            problem = self._start()
            if not problem:
                self._serve()
        finally:
            self._kill_all()
            if not problem and self.status is not None and not self.is_told_to_end:
                self._drain()
                self._say(b"x", str(self.status).encode())
            else:
                stopped = STOPPED if os.getppid() == self.shim else SHIM_DIED
                self._say(b"p", (problem or stopped).encode("utf-8", "replace")[:1000])
            self._flush()
            if self.cgroup:
                self.cgroup.close()

    # -- its start

    def _start(self) -> str:
        """Why the program could not be started; empty when it runs."""
        try:
            theirs = self._terminal() if self.order.on_terminal else self._pipes()
            failures, told = os.pipe2(os.O_CLOEXEC)
            self.leader = os.fork()
        except OSError as error:
            return f"it can't be started: {os.strerror(error.errno or 0)}"
        if self.leader == 0:
            become(self.order, self.surroundings, theirs, told)
        for fd in {told, *theirs}:
            os.close(fd)
        said = b""
        while more := os.read(failures, 4096):
            said += more
        os.close(failures)
        return printable(said)

    def _terminal(self) -> list[int]:
        master, slave = os.openpty()
        identity = self.surroundings.identity
        if identity.uid is not None and identity.gid is not None:
            os.fchown(slave, identity.uid, identity.gid)
        self.input = self.window = master
        self.outputs[master] = b"o"
        os.set_blocking(master, False)
        self._resize(self.order.rows, self.order.columns)
        os.dup(slave)  # to the end: a program may let go of its terminal, and take it again
        return [slave] * 3

    def _pipes(self) -> list[int]:
        theirs, self.input = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.input, False)
        ends = [theirs]
        for kind in (b"o", b"r"):
            ours, end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            self.outputs[ours] = kind
            ends.append(end)
        return ends

    # -- while it runs

    def _serve(self) -> None:
        """Copy both ways until the program has ended, the agent has gone, or the shim says so."""
        poll = select.poll()
        watched: dict[int, int] = {}
        while not self.is_told_to_end and not self.is_alone and self.status is None:
            wanted = self._interest()
            for fd in watched.keys() - wanted.keys():
                poll.unregister(fd)
            for fd, events in wanted.items():
                if watched.get(fd) != events:
                    poll.register(fd, events)
            watched = wanted
            ready = dict(poll.poll())
            if self.wake in ready:
                os.read(self.wake, 4096)
                self._reap()
            if self.connection in ready:
                self._receive(ready[self.connection])
            for fd in [fd for fd in self.outputs if fd in ready]:
                self._take_output(fd)
            self._give_input()
            self._send()

    def _interest(self) -> dict[int, int]:
        """By descriptor what to wait for: no output while much is unsent, no input while some is pending."""
        wanted = {self.wake: select.POLLIN, self.connection: 0}
        if not self.pending:
            wanted[self.connection] |= select.POLLIN
        if self.unsent:
            wanted[self.connection] |= select.POLLOUT
        if len(self.unsent) < UNSENT_MOST:
            wanted |= dict.fromkeys(self.outputs, select.POLLIN)
        if self.pending and self.input >= 0:
            wanted[self.input] = wanted.get(self.input, 0) | select.POLLOUT
        return wanted

    def _receive(self, events: int) -> None:
        if events & (select.POLLHUP | select.POLLERR):
            self.is_alone = True
        if not events & select.POLLIN:
            return
        try:
            data = os.read(self.connection, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.is_alone = self.is_alone or not data
        self.received += data
        while len(self.received) >= terminal.HEAD:
            end = terminal.HEAD + int.from_bytes(self.received[1 : terminal.HEAD], "big")
            if len(self.received) < end:
                return
            kind, rest = bytes(self.received[:1]), bytes(self.received[terminal.HEAD : end])
            del self.received[:end]
            self._obey(kind, rest)

    def _obey(self, kind: bytes, rest: bytes) -> None:
        if kind == b"d":
            self.pending += rest
        elif kind == b"w" and len(rest) == 4:
            self._resize(int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:], "big"))
        elif kind == b"e":
            self.ends_input = True

    def _resize(self, rows: int, columns: int) -> None:
        if self.window >= 0 and rows and columns:
            terminal.resize(self.window, rows, columns)

    def _give_input(self) -> None:
        try:
            while self.pending and self.input >= 0:
                del self.pending[: os.write(self.input, self.pending)]
        except BlockingIOError:
            return
        except OSError:
            self.ends_input = True  # it reads no more
        if self.ends_input and self.window < 0 and self.input >= 0:
            os.close(self.input)
            self.input = -1
        if self.input < 0 or self.ends_input:
            self.pending.clear()

    def _take_output(self, fd: int) -> bool:
        """Whether there may be more now."""
        try:
            data = os.read(fd, READ_MOST)
        except BlockingIOError:
            return False
        except OSError:  # hung up, as by a process that may
            data = b""
        if data:
            self._say(self.outputs[fd], data)
            return True
        if fd == self.window:
            self.input = -1
        else:
            os.close(fd)
        del self.outputs[fd]
        return False

    def _say(self, kind: bytes, rest: bytes) -> None:
        self.unsent += frame(kind, rest)

    def _send(self) -> None:
        try:
            while self.unsent:
                del self.unsent[: os.write(self.connection, self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.is_alone = True

    # -- its end

    def _reap(self) -> bool:
        """Whether a child is left."""
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == self.leader:
                    code = os.waitstatus_to_exitcode(reaped[1])
                    self.status = code if code >= 0 else 128 - code
        except ChildProcessError:
            return False
        return True

    def _kill_all(self) -> None:
        """Kill all that the shell has started, again and again until nothing of it is left."""
        interval_s = KILL_FASTEST_S
        while self._kill():
            self._wait(interval_s)
            interval_s = min(2 * interval_s, KILL_SLOWEST_S)

    def _kill(self) -> bool:
        """Whether anything is left."""
        if not self._is_left():
            return False
        if self.cgroup:
            self.cgroup.kill()
        kill_descendants()
        return self._is_left()

    def _is_left(self) -> bool:
        return self._reap() or not (self.cgroup is None or self.cgroup.is_empty())

    def _drain(self) -> None:
        """Pass on what the program wrote last; nothing has its files open any more."""
        for fd in list(self.outputs):
            while fd in self.outputs and self._take_output(fd):
                if len(self.unsent) >= UNSENT_MOST and not self._flush():
                    return

    def _flush(self) -> bool:
        """Whether all was sent; an agent that takes nothing is not waited for once the shim wants an end."""
        self._send()
        while self.unsent and not self.is_alone and not self.is_told_to_end:
            self._wait(None, self.connection)
            self._send()
        return not self.unsent

    def _wait(self, at_most_s: float | None, connection: int = -1) -> None:
        """Return once a child has ended, the shim wants an end, or the connection takes more."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if connection >= 0:
            poll.register(connection, select.POLLOUT)
        if self.wake in dict(poll.poll(None if at_most_s is None else at_most_s * 1000)):
            os.read(self.wake, 4096)
