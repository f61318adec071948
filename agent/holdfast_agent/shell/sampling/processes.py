"""Processes of a worker's tree, read through descriptors that are kept open."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from typing import TypeVar

from holdfast_agent.core.proc import descriptors, proc_text, system_calls
from holdfast_agent.core.proc.descriptors import Sort
from holdfast_agent.core.proc.proc_text import Call, CoreTime, Io, MainThread, Stat, World
from holdfast_agent.core.proc.process_counters import Account, Counters
from holdfast_agent.core.proc.process_tree import Role
from holdfast_agent.shell.sampling.guarded_reader import Subject, Turn

T = TypeVar("T")
_TEXT_BYTES = 4096
_COMMAND_BYTES = 16 << 10
_ENVIRON_BYTES = 512 << 10
_MOUNTS_BYTES = 1 << 20
_NEW_MOST = 4096
"""New processes looked at in one pass over /proc; a host that starts more has them looked at in the next."""
FORGET_PASSES = 30
"""After so many passes every process is looked at again: a pid may have been used again."""
# read, pread64, readv, preadv, write, pwrite64, writev, pwritev, fsync, fdatasync, sync_file_range, fallocate
_CALLS_ON_FILES = {
    "x86_64": frozenset({0, 17, 19, 295, 1, 18, 20, 296, 74, 75, 277, 285}),
    "aarch64": frozenset({63, 67, 65, 69, 64, 68, 66, 70, 82, 83, 84, 47}),
}.get(os.uname().machine, frozenset())


class Gone(Exception):
    """There is no such process any more."""


class Member(Subject):
    """One process. ``parent`` is the one it had when it was first seen. Reads raise ``Gone``."""

    def __init__(self, pid: int, stat: Stat, *, keep_open: bool) -> None:
        self.pid = pid
        self.parent = stat.parent
        self.stat = stat
        self.account = Account()
        self.command: tuple[str, ...] = ()
        self.world = World()
        self.world_known = False
        self.role = Role.CHILD
        self.owner = 0
        self.looks = 0
        # As they were before a dump tool of ours stopped it.
        self.state = stat.state
        self.wchan = ""
        self.no_io = False
        self.no_core_time = False
        # By any means, into anything: who writes nothing writes no file.
        self.written = 0
        self._keep_open = keep_open
        self._handles: dict[str, int] = {}

    def close(self) -> None:
        """Let go of its descriptors."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def read_stat(self, turn: Turn) -> Stat:
        """State and counters; a pid that was used again is ``Gone``."""
        stat = self._parsed(turn, "stat", proc_text.parse_stat)
        if stat is None or stat.start_ticks != self.stat.start_ticks:
            raise Gone
        self.stat = stat
        return stat

    def read_counters(self, turn: Turn) -> Counters:
        """Counters from the newest ``stat``, and from ``io`` if it is readable."""
        stored, chars = self.account.last.storage_bytes, self.account.last.written
        if not self.no_io and (io := self._io(turn)) is not None:
            stored, chars = io.storage_bytes, io.written_chars
            self.written = io.written_chars + io.written_bytes
        return Counters(self.stat.own_ticks, self.stat.reaped_ticks, stored, self.stat.major_faults, chars)

    def _io(self, turn: Turn) -> Io | None:
        io = self._parsed(turn, "io", proc_text.parse_io)
        self.no_io = io is None
        return io

    def read_main_thread(self, turn: Turn) -> MainThread | None:
        """The process's tracer and the voluntary switches of its main thread; None where we may not read them."""
        return self._parsed(turn, f"task/{self.pid}/status", proc_text.parse_main_thread)

    def read_main_written(self, turn: Turn) -> int | None:
        """Bytes that its main thread has written by system calls; None where we may not read them."""
        if self.no_io or (io := self._parsed(turn, f"task/{self.pid}/io", proc_text.parse_io)) is None:
            return None
        return io.written_chars

    def read_core_time(self, turn: Turn) -> CoreTime | None:
        """Time of its main thread on a core and without one; None where the kernel doesn't say."""
        if self.no_core_time:
            return None
        try:
            found = self._parsed(turn, f"task/{self.pid}/schedstat", proc_text.parse_schedstat)
        except Gone:
            found = None  # a kernel without it, or the process is gone, which the next read tells
        self.no_core_time = found is None
        return found

    def read_wchan(self, turn: Turn) -> str:
        """Kernel function the process sleeps in; empty if the kernel doesn't say."""
        return self._parsed(turn, "wchan", proc_text.parse_wchan) or ""

    def read_command(self, turn: Turn) -> tuple[str, ...]:
        """The process's program and arguments; empty where they can't be read."""
        data = self._once(turn, "cmdline", _COMMAND_BYTES)
        return proc_text.parse_command(data) if data else ()

    def read_world(self, turn: Turn, *, by_torch: bool = False) -> World:
        """Its rank and world, as the environment says that it was started with."""
        return proc_text.world_in(self._once(turn, "environ", _ENVIRON_BYTES) or b"", by_torch=by_torch)

    def read_call(self, turn: Turn, thread: int = 0) -> Call | str:
        """The system call that its main thread, or another one, is in; "running" for none, or "unreadable"."""
        data = self._once(turn, f"task/{thread}/syscall", _TEXT_BYTES) if thread else self._read(turn, "syscall")
        try:
            return "unreadable" if data is None else proc_text.parse_syscall(data) or "running"
        except ValueError:
            return "unreadable"

    def read_link(self, turn: Turn, name: str) -> str:
        """The target of a link under /proc/PID; empty where there is none, or it may not be read."""
        try:
            return turn.call(self, os.readlink, f"/proc/{self.pid}/{name}")
        except OSError:
            return ""

    def read_table(self, turn: Turn, name: str, most: int) -> bytes:
        """The first ``most`` bytes of a file under /proc/PID; empty where it can't be read."""
        try:
            return turn.call(self, read_once, f"/proc/{self.pid}/{name}", most)
        except OSError:
            return b""

    def read_memory(self, turn: Turn, address: int, size: int) -> bytes:
        """Bytes of its memory; empty where they can't be read."""
        try:
            return turn.call(self, _read_at, f"/proc/{self.pid}/mem", address, size)
        except (OSError, OverflowError):
            return b""

    def read_path(self, turn: Turn, address: int) -> str:
        """A path in its memory; empty where it can't be read."""
        # A path may end just before memory that isn't there: what follows it is not asked for first.
        page_end = -address % 4096 or 4096
        data = self.read_memory(turn, address, min(system_calls.PATH_BYTES, page_end))
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def read_threads(self, turn: Turn, most: int) -> list[int]:
        """The ids of its threads but the main one, at most so many."""
        try:
            names = turn.call(self, os.listdir, f"/proc/{self.pid}/task")
        except OSError:
            return []
        return [int(name) for name in names if int(name) != self.pid][:most]

    def read_files(self, turn: Turn, most: int) -> list[tuple[int, str]]:
        """Descriptors of regular files and others with a path, by their numbers; at most so many."""
        try:
            return turn.call(self, _open_files, self.pid, most)
        except OSError:
            return []

    def read_device(self, turn: Turn, mount_id: int) -> tuple[int, int]:
        """Major and minor of a mount's device, (0, 0) where it isn't known."""
        return proc_text.mount_device(self.read_table(turn, "mountinfo", _MOUNTS_BYTES), mount_id)

    def read_mount(self, turn: Turn) -> str:
        """The mount that its system call waits for; empty where that isn't known. Touches no file on that mount."""
        try:
            text = self._once(turn, "syscall", _TEXT_BYTES)
            call = proc_text.parse_syscall(text) if text else None
            if call is None or call.number not in _CALLS_ON_FILES or not call.arguments:
                return ""
            info = self._once(turn, f"fdinfo/{call.arguments[0]}", _TEXT_BYTES)
            mounts = self._once(turn, "mountinfo", _MOUNTS_BYTES)
            return proc_text.mount_point(mounts, proc_text.parse_fdinfo(info)[1]) if info and mounts else ""
        except ValueError:
            return ""

    def _parsed(self, turn: Turn, name: str, parse: Callable[[bytes], T]) -> T | None:
        """The parsed file of the process; None where we may not read it."""
        data = self._read(turn, name)
        if data is None:
            return None
        try:
            return parse(data)
        except ValueError as error:
            raise Gone from error  # empty once the process is a zombie or gone

    def _read(self, turn: Turn, name: str) -> bytes | None:
        if not self._keep_open:
            return self._once(turn, name, _TEXT_BYTES)
        try:
            handle = self._handles.get(name)
            if handle is None:
                handle = self._handles[name] = turn.call(self, _open, f"/proc/{self.pid}/{name}")
            return turn.call(self, os.pread, handle, _TEXT_BYTES, 0)
        except PermissionError:
            return None
        except OSError as error:
            raise Gone from error

    def _once(self, turn: Turn, name: str, most: int) -> bytes | None:
        try:
            return turn.call(self, read_once, f"/proc/{self.pid}/{name}", most)
        except PermissionError:
            return None
        except OSError as error:
            raise Gone from error


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _read_at(path: str, address: int, size: int) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, size, address)
    finally:
        os.close(handle)


def _open_files(pid: int, most: int) -> list[tuple[int, str]]:
    found = []
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                link = descriptors.link_of(os.readlink(entry.path))
                if link.sort is Sort.FILE and link.path.startswith("/"):
                    found.append((int(entry.name), link.path))
            if len(found) >= most:
                break
    return found


def read_once(path: str, most: int) -> bytes:
    """The first ``most`` bytes of a file. Raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(handle, min(most, 64 << 10))
        while part and len(data) < most:
            part = os.read(handle, min(most - len(data), 64 << 10))
            data += part
        return data
    finally:
        os.close(handle)


class Table(Subject):
    """The host's process table: one pass over /proc finds the new processes of all workers."""

    def __init__(self) -> None:
        self._orphans: set[int] = set()
        self._passes = 0

    def forget(self) -> None:
        """Look at every process again: there are new roots."""
        self._orphans.clear()

    def new(self, turn: Turn, members: Collection[int]) -> tuple[set[int], dict[int, Stat]]:
        """All pids of the host, and the processes not seen before, which are skipped next time unless adopted."""
        self._passes += 1
        if self._passes % FORGET_PASSES == 0:
            self._orphans.clear()
        pids = {int(name) for name in turn.call(self, os.listdir, "/proc") if name.isdigit()}
        self._orphans &= pids
        found: dict[int, Stat] = {}
        for pid in pids - self._orphans:
            if pid in members:
                continue
            if len(found) >= _NEW_MOST:
                break
            with contextlib.suppress(OSError, ValueError):
                found[pid] = proc_text.parse_stat(turn.call(self, read_once, f"/proc/{pid}/stat", _TEXT_BYTES))
        self._orphans |= found.keys()
        return pids, found

    def adopt(self, pid: int) -> None:
        """Mark ``pid`` as owned by a worker, so that it no longer counts as an orphan."""
        self._orphans.discard(pid)
