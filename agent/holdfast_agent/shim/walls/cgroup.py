"""A generation's cgroup (v2): bounds it, kills it whole, proves it empty, counts what lack of memory has killed.

The agent names the worker's directory; each generation has `g<N>` in it, made before the first fork and removed
once nothing is left; an installation has one beside them. Ranks are forked into it, and whatever they start stays in.
The limits are written where the kernel offers them; a host without cgroups, or without some controller, does without.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal

from holdfast_agent.shim.processes import Process, children, now_s, read_small

ROUNDS = 10
CONTROLLERS = (b"+memory", b"+pids")
ONE_KILL_S = 1.0  # ends that are seen so shortly after each other may be of one lack of memory
SHELLS = "-shells"  # ends the path of the cgroup of shells beside a generation's
SHELL_PIDS = 4096
SPARE_BYTES = 64 << 20  # for the shim, which is counted with its worker
CLONE3, CLONE_INTO_CGROUP = 435, 1 << 33  # a system call of this number on every architecture

_python = ctypes.PyDLL(None, use_errno=True)  # it holds on to the interpreter, of which a child gets a copy
_python.syscall.restype = ctypes.c_long


class Cgroup:
    """A cgroup of a worker: of one generation, or of an installation. Raises OSError where it can't be made."""

    def __init__(self, path: str, memory_bytes: int, pids: int) -> None:
        self.path = path
        _make(os.path.dirname(path))
        try:
            os.mkdir(self.path, 0o755)
        except FileExistsError:
            pass  # of a shim that died before its intent
        self._limit_bytes = memory_bytes if memory_bytes and self._offer("memory.max", memory_bytes) else 0
        if self._limit_bytes:
            self._offer("memory.swap.max", 0)  # swap is memory, too, and slow for all
        self._pids = pids
        if pids:
            self._offer("pids.max", pids)
        self._procs = os.open(self.path + "/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        self._counted = self._oom_kills()
        self._killed_at_s = -ONE_KILL_S

    def beside(self) -> Cgroup:
        """One for shells beside this one, so that the kernel counts apart what it kills there. Raises OSError.

        Its own limit is that of this one, and the worker's from then on, so that both together get no more.
        """
        if self._limit_bytes:
            try:
                _write(os.path.dirname(self.path) + "/memory.max", b"%d" % (self._limit_bytes + SPARE_BYTES))
            except OSError:
                pass  # not ours to bound: then the shells have a bound of their own
        return Cgroup(self.path + SHELLS, self._limit_bytes, min(self._pids, SHELL_PIDS) or SHELL_PIDS)

    def enter(self) -> None:
        """Takes in this process. Raises OSError."""
        os.write(self._procs, b"0")

    def take(self, pid: int) -> None:
        """Takes in another process. Raises OSError."""
        os.write(self._procs, b"%d" % pid)

    def fork(self) -> int:
        """Fork as ``os.fork`` does, with the child in it from its first instruction: nothing is ever done unbounded.

        Where the kernel or a container's filter doesn't allow that, the child begins in ours: see ``gather``. Raises
        OSError where the bounds, or the host, allow no further process.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            pid = _clone_into(fd)
        finally:
            os.close(fd)
        return os.fork() if pid is None else pid

    def gather(self) -> None:
        """Takes in every descendant of this process; what they start from then on is in it by itself.

        For ranks that were started before their launch, and where ``fork`` can't begin there. A move waits for every
        processor, some milliseconds: too long for a rank to begin with, so it is moved while it runs. Parents go
        before their children are looked for; a child whose parent ends meanwhile becomes ours, so it is found in the
        next round. What starts processes faster than that is left to waitpid.
        """
        for _ in range(ROUNDS):
            if not self._gather_once():
                return

    def _gather_once(self) -> bool:
        """Whether anything was outside."""
        inside, moved = self._members(), False
        found = [os.getpid()]
        for parent in found:  # grows while it is walked
            for child in children(parent):
                found.append(child)
                if child not in inside:
                    moved = True
                    try:
                        os.write(self._procs, b"%d" % child)
                    except OSError:
                        pass  # it has ended
        return moved

    def _members(self) -> set[int]:
        try:
            with open(self.path + "/cgroup.procs", "rb") as file:
                return {int(pid) for pid in file.read().split()}
        except OSError:
            return set()

    def lift(self) -> None:
        """Bound the memory of what is in it no more: it is about to move to a cgroup with a bound of its own."""
        try:
            _write(self.path + "/memory.max", b"max")
        except OSError:
            pass  # then there was none

    def kill(self) -> None:
        """Kill every process in it at once; no process can escape by forking."""
        self._offer("cgroup.kill", 1)

    def is_empty(self) -> bool:
        """Whether the kernel counts no process in it."""
        try:
            return b"populated 0" in read_small(self.path + "/cgroup.events").splitlines()
        except FileNotFoundError:
            return True  # it is no more
        except OSError:
            return False

    def others(self, known: list[Process]) -> list[Process]:
        """Processes in it that are not in ``known``, as many as one read returns."""
        pids = {process.pid for process in known}
        found = []
        try:
            for pid in read_small(self.path + "/cgroup.procs").split(b"\n")[:-1]:
                if int(pid) not in pids:
                    found.append(Process(int(pid)))
        except (OSError, ValueError):
            pass  # gone, or cut at the end of what was read
        return found

    @property
    def limit(self) -> str:
        """The memory limit as words that begin with a space; empty without one."""
        return f" (its limit is {self._limit_bytes >> 20} MiB)" if self._limit_bytes else ""

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed a process of it for lack of memory since the last call, or just before that.

        It kills several at once, whose ends are seen one by one.
        """
        before, self._counted = self._counted, self._oom_kills()
        if self._counted > before:
            self._killed_at_s = now_s()
        return now_s() - self._killed_at_s < ONE_KILL_S

    def close(self) -> None:
        """Removes it, with what ranks have made in it. The kernel refuses while anything lives there."""
        os.close(self._procs)
        remove(self.path)

    def _offer(self, name: str, value: int) -> bool:
        try:
            _write(f"{self.path}/{name}", b"%d" % value)
        except OSError:
            return False
        return True

    def _oom_kills(self) -> int:
        try:
            counts = dict(line.split() for line in read_small(self.path + "/memory.events").splitlines())
        except (OSError, ValueError):
            return 0
        return int(counts.get(b"oom_kill", 0))


def _clone_into(cgroup: int) -> int | None:
    """Fork into a cgroup that is open: 0 in the child, None where that can't be. Raises OSError where it is full."""
    # struct clone_args: flags, three addresses, the signal of its end, stack, tls, set_tid, and the cgroup at last
    how = (ctypes.c_uint64 * 11)(CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    _python.PyOS_BeforeFork()
    pid: int = _python.syscall(ctypes.c_long(CLONE3), how, ctypes.c_size_t(ctypes.sizeof(how)))
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    problem = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0 and problem in (errno.EAGAIN, errno.ENOMEM):
        raise OSError(problem, os.strerror(problem))
    return pid if pid > 0 else None


def remove(path: str) -> None:
    """Remove a cgroup and those below it, as far as they are empty."""
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            pass


def enable(path: str) -> None:
    """Offers memory and pids to the cgroups below this one, as far as it has them itself."""
    for controller in CONTROLLERS:
        try:
            _write(path + "/cgroup.subtree_control", controller)
        except OSError:
            pass


def _make(path: str) -> None:
    """Make a cgroup and those above it that are missing. Raises OSError."""
    if not os.path.isdir(path):
        _make(os.path.dirname(path))
        os.mkdir(path, 0o755)
        enable(path)


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
