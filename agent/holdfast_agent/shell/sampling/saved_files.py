"""Files that a worker's processes are writing: checkpoints and TensorBoard's events, by their descriptors."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.hang.records.recording import SavedFiles
from holdfast_agent.core.proc.open_files import FileKind, file_kind
from holdfast_agent.shell.sampling.guarded_reader import Turn
from holdfast_agent.shell.sampling.processes import Member

DESCRIPTORS_MOST = 512
"""Of one process looked at in one pass; one that holds more is looked at in turns."""
FILES_MOST = 256
"""Open files that are followed per worker."""
REMEMBERED_MOST = 4 * FILES_MOST
"""Files whose last size is remembered, those that were closed since included."""

_Identity = tuple[int, int]


class _File(NamedTuple):
    identity: _Identity
    path: str
    kind: FileKind
    size: int
    changed_ns: int


@dataclass(slots=True)
class _Writer:
    """Files found at the last look at one process, and the bytes it had written by then."""

    written: int = -1
    offset: int = 0
    # Descriptors that were worth a look.
    names: tuple[str, ...] = ()
    files: tuple[_File, ...] = ()


class SavedFileWatch:
    """The files of one worker. A file that is there at the first look at its process hasn't grown yet.

    One that turns up later with something in it has: its first portion was written since the last look. Only where
    a process holds so many descriptors that they are looked at in turns, that is unknown, and the second counts.
    """

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._writers: dict[int, _Writer] = {}
        # Size and time of change at the last look, the files that were seen last at the end.
        self._known: dict[_Identity, tuple[int, int]] = {}
        self._looked = False
        self.sample = SavedFiles()

    def look(self, turn: Turn, members: Iterable[Member], now_s: float) -> None:
        """Look once at the open files; ``sample`` then holds the result."""
        writers = {member.pid: self._look_at(turn, member) for member in members}
        files = {file.identity: file for writer in writers.values() for file in writer.files}
        appeared = self._appeared(writers) if len(files) <= FILES_MOST else frozenset()
        old = self.sample
        grew: dict[FileKind, float | None] = {
            FileKind.CHECKPOINT: old.checkpoint_grew_s,
            FileKind.EVENTS: old.events_grew_s,
            FileKind.OTHER: old.other_grew_s,
        }
        path, size = old.path, old.bytes
        for file in list(files.values())[:FILES_MOST]:
            if self._has_grown(file, appeared):
                grew[file.kind] = now_s
                if file.kind is FileKind.CHECKPOINT:
                    path, size = _as_text(file.path), file.size
        self._writers = writers
        self._remember(files.values())
        self._looked = True
        self.sample = SavedFiles(
            checkpoint_open=any(file.kind is FileKind.CHECKPOINT for file in files.values()),
            checkpoint_grew_s=grew[FileKind.CHECKPOINT],
            events_grew_s=grew[FileKind.EVENTS],
            other_grew_s=grew[FileKind.OTHER],
            path=path,
            bytes=size,
        )

    def _appeared(self, writers: Mapping[int, _Writer]) -> frozenset[_Identity]:
        """Files that no process had open at the last look, where that was one at all its descriptors."""
        before = {file.identity for writer in self._writers.values() for file in writer.files}
        found = set()
        for pid, writer in writers.items():
            earlier = self._writers.get(pid)
            whole = earlier.written >= 0 if earlier is not None else self._looked
            if whole:
                found |= {file.identity for file in writer.files}
        return frozenset(found - before)

    def _has_grown(self, file: _File, appeared: Collection[_Identity]) -> bool:
        known = self._known.get(file.identity)
        if file.identity not in appeared:
            return known is not None and file.size > known[0]
        # One that was closed and is opened again, or another in its place, counts if it was written to.
        return file.size > 0 and known != (file.size, file.changed_ns)

    def _remember(self, files: Iterable[_File]) -> None:
        for file in list(files)[:FILES_MOST]:
            self._known.pop(file.identity, None)
            self._known[file.identity] = file.size, file.changed_ns
        for identity in list(self._known)[: max(0, len(self._known) - REMEMBERED_MOST)]:
            del self._known[identity]

    def _look_at(self, turn: Turn, member: Member) -> _Writer:
        """The files of one process; those of the last look where it has written nothing since."""
        writer = self._writers.get(member.pid, _Writer())
        if member.stuck or writer.written == member.written:
            return writer
        folder = f"/proc/{member.pid}/fd"
        try:
            names = turn.call(member, os.listdir, folder)
        except OSError:
            return _Writer(member.written)
        start = writer.offset if writer.offset < len(names) else 0
        more = len(names) > DESCRIPTORS_MOST
        part = dict.fromkeys((*writer.names, *names[start : start + DESCRIPTORS_MOST]))
        found = {name: file for name in part if (file := self._file(turn, member, f"{folder}/{name}"))}
        return _Writer(
            written=-1 if more else member.written,
            offset=start + DESCRIPTORS_MOST if more else 0,
            names=tuple(found)[:FILES_MOST],
            files=tuple(found.values()),
        )

    def _file(self, turn: Turn, member: Member, link: str) -> _File | None:
        """The file behind a descriptor, if it is regular, open for writing and outside the log directory."""
        try:
            # The link's own mode tells how the file was opened, without a look at the file.
            if not turn.call(member, os.lstat, link).st_mode & stat.S_IWUSR:
                return None
            path = turn.call(member, os.readlink, link)
            kind = file_kind(path, self._log_dir)
            if kind is None:
                return None
            status = turn.call(member, os.stat, link)
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return _File((status.st_dev, status.st_ino), path, kind, status.st_size, status.st_mtime_ns)


def _as_text(path: str) -> str:
    """The path as text: a name need not be UTF-8."""
    return os.fsencode(path).decode("utf-8", "replace")
