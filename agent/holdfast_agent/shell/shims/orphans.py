"""Finds and ends what a dead shim has left, and proves that nothing is left.

A process belongs to a worker when its environment carries the worker's marks, or when it is in the dead shim's
session and started after it. It is signalled through a pidfd that was opened before its start time was compared
again, so that a reused pid never gets a signal. Zombies count as gone. May block (``/proc/PID/environ`` of a
process in trouble), so it runs in a thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import WorkerId
from holdfast_agent.shell.base.programs import ENVIRON_MOST_BYTES
from holdfast_agent.shell.shims.owners import is_of_another
from holdfast_agent.shim.processes import NO_ROOM, Process
from holdfast_agent.shim.walls.cgroup import SHELLS, remove

ROUNDS = 50
ROUND_S = 0.2


@dataclass(frozen=True, slots=True)
class Mark:
    """Marks that identify a worker's processes among all others."""

    key: WorkerId
    host: str
    generation: int
    shim_pid: int = 0
    """0 where the shim is not known."""
    shim_start_ticks: int = 0
    cgroup: str = ""
    """The generation's cgroup directory, where the host has cgroups."""
    uid: int | None = None
    """The worker's account, where it is known: anyone can mark a process, and start the next when it is killed."""

    @property
    def cgroups(self) -> tuple[str, ...]:
        """Cgroups in which all processes are the worker's.

        Those of its ranks and of users' shells beside them, of what is parked for the next generation, and of ranks
        that went on from one before.
        """
        folder, _, name = self.cgroup.rpartition("/g")
        if not folder or not name.isdecimal():
            return (self.cgroup, self.cgroup + SHELLS) if self.cgroup else ()
        others = (f"{folder}/{kind}{int(name) + more}" for kind in "ws" for more in (0, 1))
        return (self.cgroup, self.cgroup + SHELLS, *others)

    @property
    def _variables(self) -> frozenset[bytes]:
        return frozenset(
            f"{name}={value}".encode()
            for name, value in (
                ("HOLDFAST_JOB", self.key.job),
                ("HOLDFAST_WORKER", self.key.worker),
                ("HOLDFAST_HOST", self.host),
            )
        )

    def fits(self, process: Process) -> bool:
        """Whether a process is the worker's. Raises ``OSError`` where it can't be looked at."""
        if process.pid == os.getpid():
            return False
        if self._in_session(process):
            return True
        variables = set(_environ(process).split(b"\0"))
        if not self._variables <= variables:
            return False
        if not any(_generation(variable) <= self.generation for variable in variables):
            return False
        return self.uid is None or not is_of_another(process.pid, self.uid)

    def _in_session(self, process: Process) -> bool:
        if not self.shim_pid or process.start_ticks < self.shim_start_ticks:
            return False
        try:
            if os.getsid(process.pid) != self.shim_pid:
                return False
        except OSError:
            return False
        # While a member lives its session's number is not given to others; a leader of another start time means
        # that all members had gone and the number belongs to another session now.
        try:
            return Process(self.shim_pid).start_ticks == self.shim_start_ticks
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
            return True


def _environ(process: Process) -> bytes:
    """The environment that it started with, from any thread that runs: one that has ended shows none."""
    for thread in os.listdir(f"/proc/{process.pid}/task") if process.state in "ZX" else [process.pid]:
        path = f"/proc/{process.pid}/task/{thread}/environ"
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path, "rb") as file:
            if environ := file.read(ENVIRON_MOST_BYTES):
                return environ
    return b""


def _generation(variable: bytes) -> float:
    name, _, value = variable.partition(b"=")
    # The process's own words: Python refuses to read thousands of digits.
    known = name == b"HOLDFAST_GENERATION" and value.isdigit() and len(value) < 19
    return int(value) if known else float("inf")


def clear(mark: Mark) -> tuple[int, str]:
    """Kill the worker's processes until none is found twice in a row.

    Returns how many there were, and what is left after the bound: empty when the worker is proven empty.
    """
    killed: set[tuple[int, int]] = set()
    clean = 0
    left: list[Process] = []
    unseen = ""
    for _ in range(ROUNDS):
        try:
            left, unseen = _find(mark), ""
        except OSError as error:
            left, unseen = [], f"can't look for what is left: {error.strerror}"
        for cgroup in mark.cgroups:
            _kill_cgroup(cgroup)
        if unseen:
            clean = 0
            time.sleep(ROUND_S)
            continue
        if not left:
            clean += 1
            if clean == 2:
                return len(killed), ""
            continue
        clean = 0
        for process in left:
            _kill(process)
            killed.add((process.pid, process.start_ticks))
        time.sleep(0.002 if len(killed) <= len(left) else ROUND_S)
    names = ", ".join(f"{process.pid} ({process.state})" for process in left)
    return len(killed), unseen or f"outlive KILL: {names}"


def _find(mark: Mark) -> list[Process]:
    """The worker's processes. Raises ``OSError`` rather than miss one for want of descriptors or memory."""
    found = []
    members = frozenset().union(*map(_members, mark.cgroups))
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            process = Process(int(name))
            if not process.dead and (process.pid in members or mark.fits(process)):
                found.append(process)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise  # else it has ended, or it is of a user whom we may not look at and could not have started
    return found


def _members(cgroup: str) -> frozenset[int]:
    """Pids in a cgroup and those below it."""
    pids: set[int] = set()
    for directory, _, _ in os.walk(cgroup):
        try:
            with open(f"{directory}/cgroup.procs", "rb") as file:
                pids.update(map(int, file.read().split()))
        except OSError as error:
            if error.errno in NO_ROOM:
                raise
    return frozenset(pids)


def _kill_cgroup(cgroup: str) -> None:
    """Kill all processes in a cgroup; an empty cgroup is removed."""
    with contextlib.suppress(OSError), open(f"{cgroup}/cgroup.kill", "wb", buffering=0) as file:
        file.write(b"1")
    remove(cgroup)


def _kill(process: Process) -> None:
    """Kill a process and wait briefly for its end."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if Process(process.pid).start_ticks == process.start_ticks:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            ended.poll(ROUND_S * 1000)
    except OSError:
        return
    finally:
        os.close(pidfd)
