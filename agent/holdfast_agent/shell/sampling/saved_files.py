"""Files that a worker's processes are writing: checkpoints and TensorBoard's events, by their descriptors."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from holdfast.hang.recording import SavedFiles
from holdfast_agent.core.open_files import FileKind, file_kind
from holdfast_agent.shell.sampling.processes import Member
from holdfast_agent.shell.sampling.turn import Turn

DESCRIPTORS_MOST = 512
"""Of one process looked at in one pass; one that holds more is looked at in turns."""
FILES_MOST = 256
"""Open files that are followed per worker."""


class SavedFileWatch:
    """The files of one worker. A file that is there when it is first seen hasn't grown yet."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._sizes: dict[tuple[int, int], int] = {}
        self._offsets: dict[int, int] = {}
        self.sample = SavedFiles()

    def look(self, turn: Turn, members: Iterable[Member], now_s: float) -> None:
        """One pass; ``sample`` is what it found."""
        sizes: dict[tuple[int, int], int] = {}
        grew: dict[FileKind, float | None] = {
            FileKind.CHECKPOINT: self.sample.checkpoint_grew_s,
            FileKind.EVENTS: self.sample.events_grew_s,
            FileKind.OTHER: self.sample.other_grew_s,
        }
        newest = (self.sample.path, self.sample.bytes)
        checkpoint_open = False
        offsets: dict[int, int] = {}
        for member in members:
            offsets[member.pid] = self._offsets.get(member.pid, 0)
            for path, kind, status in self._open_files(turn, member, offsets):
                identity = (status.st_dev, status.st_ino)
                if len(sizes) >= FILES_MOST or identity in sizes:
                    continue
                sizes[identity] = status.st_size
                checkpoint_open = checkpoint_open or kind is FileKind.CHECKPOINT
                if status.st_size > self._sizes.get(identity, status.st_size):
                    grew[kind] = now_s
                    newest = (path, status.st_size) if kind is FileKind.CHECKPOINT else newest
        self._sizes, self._offsets = sizes, offsets
        self.sample = SavedFiles(
            checkpoint_open,
            grew[FileKind.CHECKPOINT],
            grew[FileKind.EVENTS],
            grew[FileKind.OTHER],
            *newest,
        )

    def _open_files(
        self, turn: Turn, member: Member, offsets: dict[int, int]
    ) -> Iterable[tuple[str, FileKind, os.stat_result]]:
        """(path, kind, status) of its regular files that are open for writing, outside the log directory."""
        if member.stuck:
            return
        folder = f"/proc/{member.pid}/fd"
        try:
            names = turn.call(member, os.listdir, folder)
        except OSError:
            return
        start = offsets[member.pid] if offsets[member.pid] < len(names) else 0
        offsets[member.pid] = start + DESCRIPTORS_MOST
        for name in names[start : start + DESCRIPTORS_MOST]:
            path = f"{folder}/{name}"
            try:
                # The link's own mode tells how the file was opened, without a look at the file.
                if not turn.call(member, os.lstat, path).st_mode & stat.S_IWUSR:
                    continue
                target = turn.call(member, os.readlink, path)
                kind = file_kind(target, self._log_dir)
                if kind is None:
                    continue
                status = turn.call(member, os.stat, path)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield target, kind, status
