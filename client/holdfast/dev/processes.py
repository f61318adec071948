"""Processes as /proc shows them, started, signalled and waited for without ever meeting a reused pid.

A process is known by its pid and its start time; a signal goes through a pidfd and only where both match.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from holdfast._base.dataclass import dataclass

_DEFAULT_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of this boot; two with the same pid differ in ``start_ticks`` (clock ticks since boot)."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Stat:
    """A process with what the kernel says of it. ``state`` is a letter as in ps."""

    process: Process
    parent: int
    session: int
    state: str
    threads: int
    name: str

    @property
    def dead(self) -> bool:
        """Whether it only waits to be reaped. A main thread may be dead while others run on."""
        return self.state in "ZX" and self.threads <= 1


def boot_id() -> str:
    """Id of the kernel's present run."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> Stat | None:
    """State of ``pid`` from the kernel, or ``None`` if there is no such process."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may itself hold blanks and parentheses.
    head, _, tail = line.rpartition(") ")
    fields = tail.split()
    process = Process(pid, int(fields[19]))
    return Stat(process, int(fields[1]), int(fields[3]), fields[0], int(fields[17]), head.partition("(")[2])


def snapshot() -> dict[int, Stat]:
    """Every process that lives, by pid; those that are dead but not yet reaped are left out."""
    found = (stat(int(entry)) for entry in os.listdir("/proc") if entry.isdecimal())
    return {s.process.pid: s for s in found if s is not None and not s.dead}


def arguments(pid: int) -> tuple[str, ...]:
    """The command line of ``pid``; empty where it can't be read."""
    return _strings(pid, "cmdline")


def environment(pid: int) -> dict[str, str]:
    """The environment that ``pid`` was started with; empty where it can't be read."""
    return dict(pair.split("=", 1) for pair in _strings(pid, "environ") if "=" in pair)


def _strings(pid: int, name: str) -> tuple[str, ...]:
    try:
        content = Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(part) for part in content.removesuffix(b"\0").split(b"\0")) if content else ()


def find(commands: Mapping[str, Sequence[str]]) -> dict[str, Process]:
    """Which of the named ``commands`` (arguments to an interpreter) run, and as which process.

    A child that was forked from one and has not called exec has the same arguments, but is not meant.
    """
    names = {tuple(command): name for name, command in commands.items()}
    table = snapshot()
    matches = {pid: name for pid in table if (name := names.get(arguments(pid)[1:]))}
    return {name: table[pid].process for pid, name in matches.items() if matches.get(table[pid].parent) != name}


def spawn(command: Sequence[str], log: Path, env: Mapping[str, str]) -> Process:
    """Start ``command`` in a session of its own and in ``/``, its output appended to ``log``."""
    # In / lest it keep a folder busy, or import modules that happen to lie where the user is.
    arguments = ["/bin/sh", "-c", 'cd / && exec "$@"', "sh", *command]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    pid = os.posix_spawn(
        arguments[0],
        arguments,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULT_SIGNALS,
    )
    started = stat(pid)
    assert started is not None, "a child stays visible until it is reaped"
    return started.process


def lives(process: Process) -> bool:
    """Whether it still runs; a dead one that was not yet reaped does not."""
    now = stat(process.pid)
    return now is not None and now.process == process and not now.dead


def send(process: Process, number: signal.Signals) -> None:
    """Signal exactly this process; nothing happens if it is gone. Raises ``PermissionError``."""
    with contextlib.suppress(ProcessLookupError), _opened(process) as pidfd:
        # Opened first and compared after: the descriptor refers to the process that has the pid now.
        if lives(process):
            signal.pidfd_send_signal(pidfd, number)


@contextlib.contextmanager
def _opened(process: Process) -> Iterator[int]:
    pidfd = os.pidfd_open(process.pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def wait_any(processes: Collection[Process], timeout_s: float) -> None:
    """Return as soon as one of ``processes`` is dead, or after ``timeout_s``."""
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for process in processes:
            try:
                pidfd = stack.enter_context(_opened(process))
            except ProcessLookupError:
                return
            if not lives(process):
                return
            poll.register(pidfd, select.POLLIN)
        poll.poll(timeout_s * 1000)


def wait_all(processes: Collection[Process], timeout_s: float) -> set[Process]:
    """Wait until all ``processes`` are dead, ``timeout_s`` at most; returns those that still live."""
    deadline = time.monotonic() + timeout_s
    while left := {p for p in processes if lives(p)}:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return left
        wait_any(left, remaining)
    return set()


def exit_status(process: Process) -> int | None:
    """How a child of ours ended: its exit code, or -N for signal N. ``None`` for all others. Reaps it."""
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if pid else None
