"""Runs one program for the agent and leaves nothing of it behind: `python -I -S program_reaper.py`.

Descriptor 0 is a unix stream socket to the agent, on which the order comes as one line of JSON; 1 and 2 are what the
program writes to. It gets /dev/null as its input and no other descriptor.

- *It ends with its agent.* When the socket closes, for whatever reason, the program and all that it has started are
  killed. So are they at the deadline, and as soon as the program itself has ended.
- *Emptiness is proven*, as the shim does it: this process is a subreaper, so "no child" means that no descendant is
  left, whatever session it has moved to; where there is a cgroup it must be empty as well.
- *It gains nothing.* The program runs as the account that was ordered, without capabilities to regain, and unless it is
  the admin's own with `no_new_privs`. This process keeps the agent's identity, so the program can't signal it.

It answers with one line, once all is over: how the program ended, and whether anything outlives KILL. It stays until
that has gone, also without an agent. A program that may leave a daemon (an admin's hook, a container engine) is left
with it if it ends well.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from holdfast_agent.shim import capabilities
from holdfast_agent.shim.launch import execute, offer_to_oom_killer
from holdfast_agent.shim.process_setup import PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, take_signals
from holdfast_agent.shim.processes import descendants, kill_descendants, now_s, printable
from holdfast_agent.shim.walls.cgroup import Cgroup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast_agent.shim.journal import Record

KILL_FASTEST_S, KILL_SLOWEST_S = 0.01, 1.0
STUCK_S = 5.0
"""After which what outlives KILL is reported."""
ORDER_BYTES = 4 << 20


class Reaper:
    """One program and its descendants."""

    def __init__(self, control: Socket, order: Record) -> None:
        self.control = control
        self.order = order
        self.wake, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        take_signals()
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.cgroup = self._cgroup()
        self.status: int | None = None
        self.deadline = now_s() + float(order["within_s"])
        self.late = False
        self.pid = -1

    def _cgroup(self) -> Cgroup | None:
        path = str(self.order["cgroup"])
        try:
            return Cgroup(path, int(self.order["memory_bytes"]), int(self.order["pids"])) if path else None
        except OSError:
            return None  # a host without cgroups, or an agent that may not make any

    def run(self) -> None:
        """Start the program, wait for its end, end what it has left, and report."""
        failures, told = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            self._become(told)
        os.close(told)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in (1, 2):
            os.dup2(null, fd)  # so that the agent sees the end of the program's output
        problem = _all_of(failures)
        self._wait()
        status = self.status  # None: it is ended now, and how it takes that says nothing
        left = "" if self.order["may_leave"] and status == 0 else self._end()
        self._answer({"status": status, "problem": problem, "late": self.late, "left": left})
        while left and self._kill():
            self._sleep(KILL_SLOWEST_S)
        if self.cgroup:
            self.cgroup.close()

    def _become(self, told: int) -> NoReturn:
        problem = "its start failed"
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            if self.cgroup:
                self.cgroup.enter()
            offer_to_oom_killer()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if most := int(self.order["file_bytes"]):
                _limit(resource.RLIMIT_FSIZE, most)
            os.umask(int(self.order["umask"]))
            problem = "cannot take the user's identity"
            self._take_identity()
            problem = f"cannot change to {self.order['cwd']}"
            os.chdir(self.order["cwd"])
            argv = [os.fsencode(word) for word in self.order["argv"]]
            env = {os.fsencode(name): os.fsencode(value) for name, value in self.order["env"].items()}
            problem = execute(argv, env)[0].removeprefix(f"{printable(argv[0])}: ")  # who ordered it knows its name
        except OSError as error:
            problem += f": {os.strerror(error.errno or 0)}"
        except ValueError as error:
            problem = str(error)  # a NUL in a word
        finally:
            os.write(told, problem[:1000].encode("utf-8", "replace"))
            os._exit(127)

    def _take_identity(self) -> None:
        uid, gid = self.order["uid"], self.order["gid"]
        if uid is None:
            return
        if uid:
            capabilities.leave_none_to_gain()
        os.setgroups(self.order["groups"] or [])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    def _wait(self) -> None:
        """Return once the program has ended, its time is up, or the agent wants no more of it."""
        poll = select.poll()
        for fd in (self.control.fileno(), self.wake):
            poll.register(fd, select.POLLIN)
        while True:
            left_s = self.deadline - now_s()
            ready = {fd for fd, _ in poll.poll(max(0.0, left_s) * 1000)}
            if self.wake in ready:
                os.read(self.wake, 4096)
                self._reap()
                if self.status is not None:
                    return
            if self.control.fileno() in ready or left_s <= 0:
                self.late = left_s <= 0
                return

    def _reap(self) -> bool:
        """Whether a child is left."""
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == self.pid:
                    self.status = os.waitstatus_to_exitcode(reaped[1])
        except ChildProcessError:
            return False
        return True

    def _end(self) -> str:
        """Kill all that is left until nothing is; after a while what outlives it, in words."""
        interval_s, stuck = KILL_FASTEST_S, now_s() + STUCK_S
        while self._kill():
            if now_s() >= stuck:
                return ", ".join(process.where() for process in descendants()[:8]) or "what its cgroup still counts"
            self._sleep(interval_s)
            interval_s = min(2 * interval_s, KILL_SLOWEST_S)
        return ""

    def _kill(self) -> bool:
        """Whether anything was there to be killed."""
        if self.cgroup:
            self.cgroup.kill()
        kill_descendants()
        return self._reap() or not (self.cgroup is None or self.cgroup.is_empty())

    def _sleep(self, at_most_s: float) -> None:
        if select.select([self.wake], [], [], at_most_s)[0]:
            os.read(self.wake, 4096)

    def _answer(self, record: Record) -> None:
        try:
            self.control.send(json.dumps(record).encode() + b"\n")
        except OSError:
            pass  # the agent has gone


def _limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _all_of(fd: int) -> str:
    """All that is written to a pipe until its writing ends are closed."""
    said = b""
    while data := os.read(fd, 4096):
        said += data
    os.close(fd)
    return printable(said)


def _received(control: Socket) -> bytes:
    """The order; empty when the agent is gone before it was whole."""
    data = b""
    while not data.endswith(b"\n") and len(data) < ORDER_BYTES:
        more = control.recv(1 << 16)
        if not more:
            return b""
        data += more
    return data


def main() -> None:
    """Serve the socket that is descriptor 0."""
    control = Socket(AF_UNIX, SOCK_STREAM, 0, os.dup(0))
    os.set_inheritable(control.fileno(), False)
    data = _received(control)
    if not data:
        return
    order = json.loads(data)
    prctl = ctypes.CDLL(None).prctl
    for option in (PR_SET_CHILD_SUBREAPER, *(() if order["may_gain"] else (PR_SET_NO_NEW_PRIVS,))):
        if prctl(option, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3):
            raise OSError(f"prctl {option} failed")
    Reaper(control, order).run()


if __name__ == "__main__":
    main()
