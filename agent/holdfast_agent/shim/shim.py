"""The parent of one worker's ranks and the keeper of their exits: `python -I -S shim.py FD`.

Theory of operation. docs/internals/shim-protocol.md is the contract; this is how it is kept.

- *Nothing forks before the intent is durable*, file and name both, so a reader of the journal knows whether a
  generation may have run. It is launched at most once: its journal is created with O_EXCL.
- *An exit is reported only once it is durable.* All that can be reaped is reaped, written and synced as one batch,
  then reported. What the disk refuses stays in memory and is written again every second.
- *Emptiness is proven by waitpid.* The shim is a subreaper: a process that loses its parent becomes its child, so "no
  child" means that no descendant is left. Only one generation has processes at any time.
- *Signals hit only what is ours.* A rank that was not reaped still owns its pid and process group; every other
  descendant is found in /proc and signalled by a pidfd that was checked.
- *Nothing blocks.* The agent may be slow, stuck or gone: what is not taken is dropped with the connection, and the
  next connection begins with a replay.

`holdfast_agent.shim.template` forks itself into shims, which is how an agent gets them; a lone one works the same.

One thread, one epoll loop; timers are the stop's deadline, then its next KILL, and the journal's next try. Imports
are what start-up costs, so they are few, and `_socket` stands in for `socket`. Every descriptor is close-on-exec: a
rank gets 0, 1, 2 and no other. This file is the loop and its
orders, `worker.py` what they do; as -I -S leaves site-packages out, this file makes its own package known, last on the
path.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM
from _socket import socket as Socket

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from holdfast_agent.shim import journal, keepers
from holdfast_agent.shim.agent import Agent
from holdfast_agent.shim.failpoints import hit
from holdfast_agent.shim.launch import encode
from holdfast_agent.shim.process_setup import settle
from holdfast_agent.shim.processes import Process, boot_id, now_s, printable
from holdfast_agent.shim.rehearsal import injection
from holdfast_agent.shim.shells import rank_shell
from holdfast_agent.shim.worker import BAD_ORDER, LONGEST_S, Worker

TYPE_CHECKING = False  # type checkers take it for true; the real one would cost an import
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast_agent.shim.journal import Record
    from holdfast_agent.shim.link import Link

VERSION = 1
IDENTITY = 256  # bytes, more than one takes
GUARD_GRACE_S = 5.0  # from TERM to KILL for ranks whose guard is gone


class Shim:
    """The loop: hears the agent, the children and the clock."""

    def __init__(self, fd: int) -> None:
        self.null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self.wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.epoll = select.epoll()
        self.epoll.register(self.wake, select.EPOLLIN)
        self.worker: Worker | None = None  # until assigned
        self.listener: Socket | None = None
        self.guard = -1  # a pidfd of the process that nothing here may outlive
        self.guard_gone = False
        self.done = False
        self.agent = Agent(self.epoll, fd)

    def run(self) -> None:
        """Run until ordered to quit, or until the agent dies before the assignment."""
        while not self.done:
            self.handle(self.epoll.poll(self.timeout_s()))
            # This process may stand still at any line. So deadlines are judged as of a moment up to which all that was
            # said has been heard.
            now = now_s()
            hit("shim.clock.after")
            if not self.done:
                self.handle(self.epoll.poll(0))
            hit("shim.heard.after")
            if self.worker:
                # Even where the journal can't be written: its folder goes with the guard.
                self.done = self.done or (self.guard_gone and self.worker.idle)
                self.worker.tick(now)

    def timeout_s(self) -> float:
        """Seconds to the next timer."""
        return self.worker.timeout_s() if self.worker else LONGEST_S

    def handle(self, events: list[tuple[int, int]]) -> None:
        """Does what each ready descriptor asks for."""
        ready = dict(events)
        if ready.pop(self.guard, 0):
            self.end_with_guard()
        if ready.pop(self.wake, 0):
            os.read(self.wake, 4096)
            if self.worker:
                self.worker.reap()  # before the agent is heard: these ended by themselves
        if self.listener and ready.pop(self.listener.fileno(), 0) and self.agent.accept(self.listener):
            self.greet()
        for fd, each in ready.items():
            if (link := self.agent.link) and fd == link.fd:
                self.serve(link, each)
            elif self.worker:
                self.worker.hear(fd)
        if self.worker is None and self.agent.link is None:
            self.done = True

    # -- the agent

    def greet(self) -> None:
        """Say who we are, and where the worker stands."""
        hello = {"ev": "hello", "version": VERSION, "pid": os.getpid(), "shells": True, "bindings": True}
        hello["faults"] = injection.FAULTS
        if self.worker:
            self.worker.greet(hello)

    def serve(self, link: Link, events: int) -> None:
        """Sends, reads, obeys. What is not our protocol ends the connection, never the shim."""
        if events & select.EPOLLOUT:
            self.agent.say()
        if not events & ~select.EPOLLOUT:
            return
        try:
            lines = link.receive() if self.agent.link is link else []
        except (OSError, ValueError):
            lines = None
        for line in lines or []:
            try:
                act = self.order(json.loads(line))
            except BAD_ORDER:
                lines = None
                break
            act()
            if self.agent.link is not link or self.done:
                return
        if lines is None:
            self.agent.drop()

    def order(self, message: Record) -> Callable[[], None]:
        """Parse a message into a call ready to be made. Raises one of BAD_ORDER."""
        operation = message["op"]
        if operation == "assign" and self.worker is None:
            path, guard = encode(message["dir"]), message.get("guard")
            named = (int(guard["pid"]), int(guard["start_ticks"])) if guard else None
            return lambda: self.assign(path, named)
        if worker := self.worker:
            if operation == "quit":
                return self.quit
            number = int(message["generation"])
            if operation == "launch":
                return lambda: worker.launch(number, message)
            if operation == "stop":
                grace_s, reason = float(message["grace_s"]), str(message["reason"])
                hung = list(message.get("hung", ())) if message.get("another_follows") else None
                if 0 <= grace_s < 1e9 and reason:
                    return lambda: worker.stop(number, grace_s, reason, hung=hung)
            if operation == "renew":
                deadline = float(message["deadline"])
                return lambda: worker.renew(number, deadline)
            if operation == "shell":
                shell = rank_shell.Order(message)
                return lambda: keepers.begin(worker.generation, number, shell, worker.directory)
            if operation == "inject":
                fault = injection.Order(message)
                return lambda: keepers.begin(worker.generation, number, fault, worker.directory)
            if operation == "signal":
                which = signal.Signals(message["signal"])
                return lambda: worker.warn(number, which)
        raise ValueError(operation)

    # -- assignment

    def assign(self, path: bytes, guard: tuple[int, int] | None) -> None:
        """Takes the worker's directory, alone, and says so on disk once it can be reached there.

        Nothing here outlives the process `guard`, a pid and its start time, where one is named.
        """
        try:
            if guard:
                self.watch_guard(*guard)
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            mine = os.open("shim.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
            try:
                os.lockf(mine, os.F_TLOCK, 0)  # held until we end; children don't inherit it
            except OSError as error:
                raise OSError(error.errno, "another shim has it") from None
            worker = Worker(directory, self.agent, self.epoll, self.null, guarded=guard is not None)
            self.listener = Socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)
            journal.remove("sock", directory)
            self.listener.bind(f"/proc/self/fd/{directory}/sock")
            self.listener.listen(8)
            me = {"pid": os.getpid(), "start_ticks": Process(os.getpid()).start_ticks}
            hit("shim.assign.before")
            # In one write, over all of what another shim has left. A power cut may take it: it is of one boot only.
            os.pwrite(mine, json.dumps(me | {"boot_id": boot_id(), "version": VERSION}).ljust(IDENTITY).encode(), 0)
        except OSError as error:
            self.agent.refuse(0, f"cannot take {printable(path)}: {error.strerror}")
            self.done = True
            return
        hit("shim.assign.after")
        self.worker = worker
        self.epoll.register(self.listener.fileno(), select.EPOLLIN)
        self.greet()

    def watch_guard(self, pid: int, start_ticks: int) -> None:
        """Wake the loop when the process is gone. Raises OSError where it is already."""
        self.guard = os.pidfd_open(pid)
        if Process(pid).start_ticks != start_ticks:  # opened first and compared after: it can't be another's since
            raise OSError(errno.ESRCH, "the process that it may not outlive is gone")
        self.epoll.register(self.guard, select.EPOLLIN)

    def end_with_guard(self) -> None:
        """Stops what runs, and ends once nothing is left."""
        self.epoll.unregister(self.guard)
        os.close(self.guard)
        self.guard = -1
        self.guard_gone = True
        if self.worker and self.worker.generation and not self.worker.idle:
            self.worker.stop(
                self.worker.generation.number, GUARD_GRACE_S, "STOPPED", "stopped by itself: holdfast guard is gone"
            )

    def quit(self) -> None:
        """Ends the shim, unless it is needed."""
        self.done = self.worker is not None and self.worker.leave()


def run(fd: int) -> None:
    """Makes this process a shim that the agent talks to over a descriptor; returns at its end."""
    settle(fd)
    shim = Shim(fd)
    try:
        shim.run()
    except BaseException:
        if shim.worker:
            import traceback  # only now: it costs more than all the rest

            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open("shim.err", flags, 0o600, dir_fd=shim.worker.directory)
            os.write(file, traceback.format_exc().encode("utf-8", "replace"))
        raise


if __name__ == "__main__":
    run(int(sys.argv[1]))
