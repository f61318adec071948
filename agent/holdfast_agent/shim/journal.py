"""The shim's files: the journal of a generation and the room kept for it.

A journal line is `CRC32HEX JSON\\n`. It is written by offset, not by append: after an error all bytes that are not
known to be durable are written again to the same place, so a half-written line never ends up in the middle, and
pages that a failed sync has dropped are dirtied again. The fields of each record are ``generation``'s matter.
"""

from __future__ import annotations

import binascii
import json
import os

from holdfast_agent.shim.failpoints import hit

TYPE_CHECKING = False  # type checkers take it for true; the real one would cost an import
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]

RESERVE = "reserve"
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Journal:
    """One generation's records; new, or FileExistsError."""

    def __init__(self, name: str, directory: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(name, flags, 0o600, dir_fd=directory)
        self._durable_bytes = 0
        self._tail = b""  # follows the durable bytes
        self._written = 0  # of the tail

    def add(self, record: Record) -> None:
        """Takes a record, in memory only."""
        text = _encoded(record).encode()
        self._tail += b"%08x %s\n" % (binascii.crc32(text), text)

    def write(self) -> None:
        """Puts records where a reader finds them should the shim die; no shield from power loss. Raises OSError."""
        while self._written < len(self._tail):
            self._written += os.pwrite(self._fd, self._tail[self._written :], self._durable_bytes + self._written)

    def sync(self) -> None:
        """Makes every record durable, or raises OSError and keeps what is not for the next try."""
        try:
            self.write()
            hit("shim.sync.before")
            os.fdatasync(self._fd)
            hit("shim.sync.after")
        except OSError:
            self._written = 0
            raise
        self._durable_bytes += len(self._tail)
        self._tail, self._written = b"", 0

    def close(self) -> None:
        """The file stays."""
        os.close(self._fd)


def create(
    number: int,
    ranks: list[int],
    gpus: list[str],
    boot_id: str,
    directory: int,
    bindings: dict[int, Record] | None = None,
) -> Journal:
    """A new generation's journal with its intent, file and name durable. Raises OSError, and then there is none."""
    name = f"g{number}.journal"
    hit("shim.intent.before")
    journal = Journal(name, directory)
    intent = {"ev": "intent", "generation": number, "ranks": ranks, "gpus": gpus, "boot_id": boot_id}
    journal.add(intent | ({"bindings": bindings} if bindings else {}))
    try:
        journal.sync()
        hit("shim.intent.synced")
        os.fsync(directory)
        hit("shim.intent.after")
    except OSError:
        journal.close()
        remove(name, directory)
        raise
    return journal


def highest_generation(directory: int) -> int:
    """Highest generation with a journal here; 0 without any."""
    names = [name for name in os.listdir(directory) if name.startswith("g") and name.endswith(".journal")]
    numbers = [name[1 : -len(".journal")] for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=0)


def reserve(size: int, directory: int) -> None:
    """Holds disk blocks that are given up for the journal when the disk is full. Raises OSError."""
    fd = os.open(RESERVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        if os.fstat(fd).st_size < size:
            os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def remove(name: str, directory: int) -> bool:
    """Whether there was such a file to remove."""
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:
        return False
    return True
