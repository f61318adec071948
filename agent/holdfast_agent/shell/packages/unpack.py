"""From a bundle to a directory, or to nothing at all. The bundle may be hostile; see ``holdfast.bundles.archive``.

Everything is made below one directory that only the agent can enter, through descriptors of directories and never
through links, and handed to the worker's user file by file. Only what is complete is moved to its place.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import zstandard

from holdfast.bundles.archive import WINDOW_MAX_BYTES, Entry, Kind, Limits, Reader
from holdfast.errors import BundleRefused
from holdfast_agent.shell.users import safe_paths

Owner = tuple[int, int]


def unpack(bundle: Path, target: Path, staging: Path, limits: Limits, owner: Owner | None = None) -> None:
    """Make ``target``, which must not exist, from the file ``bundle``; all of it belongs to ``owner``.

    ``staging`` is a directory of the agent's on the target's file system; what is left there by a crash may be
    removed. Raises ``BundleRefused`` or ``OSError``, and leaves nothing behind then. Blocks.
    """
    fresh = Path(tempfile.mkdtemp(dir=staging, prefix="unpacking-"))
    try:
        with bundle.open("rb") as packed:
            most_bytes = limits.unpacked_bytes(os.fstat(packed.fileno()).st_size)
            decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX_BYTES)
            try:
                with (
                    decompressor.stream_reader(packed, read_across_frames=False) as tar,
                    contextlib.closing(_Tree(fresh, owner)) as tree,
                ):
                    reader = Reader(tar.read, files=limits.files, most_bytes=most_bytes)
                    for entry in reader.entries():
                        tree.add(entry, reader)
            except zstandard.ZstdError as error:
                raise BundleRefused(f"The bundle is damaged: {error}.") from error
        # By path, but within the staging directory, which no other user can enter.
        fresh.chmod(0o755)
        if owner is not None:
            os.chown(fresh, *owner)
        fresh.rename(target)
    except BaseException:
        safe_paths.try_to_remove(fresh)
        raise


class _Tree:
    """Directories and files made so far. The directory used last stays open, since entries come sorted."""

    def __init__(self, top: Path, owner: Owner | None) -> None:
        self._owner = owner
        self._top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._last, self._last_path = self._top, ""

    def close(self) -> None:
        if self._last != self._top:
            os.close(self._last)
        os.close(self._top)

    def add(self, entry: Entry, reader: Reader) -> None:
        """Make one entry; a file with what ``reader`` gives of it. Raises ``OSError``."""
        parent, _, name = entry.path.rpartition("/")
        directory = self._open(parent)
        match entry.kind:
            case Kind.DIRECTORY:
                os.mkdir(name, 0o755, dir_fd=directory)
                self._own(name, directory)
            case Kind.LINK:
                os.symlink(entry.target, name, dir_fd=directory)
                self._own(name, directory)
            case Kind.FILE:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                handle = os.open(name, flags, 0o755 if entry.executable else 0o644, dir_fd=directory)
                with open(handle, "wb", buffering=0) as file:
                    for data in reader.content(entry):
                        rest = memoryview(data)
                        while rest:
                            rest = rest[file.write(rest) :]
                    os.fchmod(handle, 0o755 if entry.executable else 0o644)
                    if self._owner is not None:
                        os.fchown(handle, *self._owner)

    def _own(self, name: str, directory: int) -> None:
        if self._owner is not None:
            os.chown(name, *self._owner, dir_fd=directory, follow_symlinks=False)

    def _open(self, path: str) -> int:
        if path == self._last_path:
            return self._last
        handle = self._top
        for part in path.split("/") if path else ():
            deeper = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            if handle != self._top:
                os.close(handle)
            handle = deeper
        if self._last != self._top:
            os.close(self._last)
        self._last, self._last_path = handle, path
        return handle
