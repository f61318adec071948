"""Reads /proc: the vector of one process, and the members of a worker. Blocking; called in threads."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Mapping

from holdfast.hang.evidence.evidence import Vector, clipped
from holdfast_agent.core.proc.proc_vector import Member, vector
from holdfast_agent.shim.processes import Process, table

_TICKS = os.sysconf("SC_CLK_TCK")
_MACHINE = platform.machine()
ENVIRON_MAX_BYTES = 1 << 20
COMMAND_MAX_BYTES = 64 << 10


def read_vector(process: Process) -> Vector:
    """Reads one process as it was when found; a later user of its pid is never mistaken for it."""
    files = {}
    for name, path in (
        ("stat", "stat"),
        ("status", f"task/{process.pid}/status"),
        ("wchan", "wchan"),
        ("syscall", "syscall"),
        ("stack", "stack"),
    ):
        with contextlib.suppress(OSError):
            files[name] = _read(process.pid, path, 16 << 10).decode("utf-8", "replace")
    if gone(process) or "stat" not in files:
        return Vector(problem="the process has ended")
    try:
        return vector(files, _TICKS, _MACHINE)
    except ValueError as error:
        return Vector(problem=clipped(f"/proc can't be understood: {error}"))


def gone(process: Process) -> bool:
    """Whether this very process is there no more; a zombie still is."""
    try:
        return Process(process.pid).start_ticks != process.start_ticks
    except OSError:
        return True


def find(pid: int) -> Process | None:
    """The process of that pid, None where there is none."""
    try:
        return Process(pid)
    except OSError:
        return None


def members(pids: frozenset[int]) -> list[Member]:
    """These processes and everything below them, with arguments and ranks."""
    processes = table()
    wanted = set(pids)
    grown = True
    while grown:
        more = {process.pid for process in processes if process.parent in wanted} - wanted
        wanted |= more
        grown = bool(more)
    return [_member(process) for process in processes if process.pid in wanted]


def _member(process: Process) -> Member:
    return Member(process.pid, process.parent, arguments(process.pid), rank_in(environ(process.pid)))


def rank_in(environ: Mapping[str, str]) -> int | None:
    """The rank that a process says it is; None where it says none, or no number of a rank."""
    rank = environ.get("RANK", "")
    return int(rank) if rank.isascii() and rank.isdigit() and len(rank) < 10 else None


def arguments(pid: int) -> tuple[str, ...]:
    """Command line of a process; empty if it has ended or may not be read."""
    try:
        data = _read(pid, "cmdline", COMMAND_MAX_BYTES)
    except OSError:
        return ()
    return tuple(part.decode("utf-8", "replace") for part in data.split(b"\0")[:-1])


def environ(pid: int) -> dict[str, str]:
    """The environment that a process started with; empty where it may not be looked at."""
    try:
        data = _read(pid, "environ", ENVIRON_MAX_BYTES)
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def _read(pid: int, name: str, limit: int) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read(limit)
