"""The last lines of what a rank has written, and whether more of it is on its way."""

from __future__ import annotations

import os

from holdfast_agent.shim.processes import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

TAIL_LINES, TAIL_BYTES = 20, 4096


def is_copied(paths: Iterable[bytes], pids: Iterable[int]) -> bool:
    """Whether one of these processes reads a pipe and writes to one of the files, as ``tee`` does."""
    files = set()
    names = set()
    for path in paths:
        try:
            files.add(os.stat(path, follow_symlinks=False)[1:3])  # inode and device
            names.add(os.fsdecode(os.path.basename(path)))
        except OSError:
            pass
    return any(_reads_a_pipe_into(files, names, pid) for pid in pids)


def _reads_a_pipe_into(files: set[tuple[int, int]], names: set[str], pid: int) -> bool:
    """Whether a process does; a file of another name is not looked at, since its server may hang."""
    folder = f"/proc/{pid}/fd"
    try:
        if not os.readlink(f"{folder}/0").startswith("pipe:"):
            return False
        return os.path.basename(os.readlink(f"{folder}/1")) in names and os.stat(f"{folder}/1")[1:3] in files
    except OSError:
        return False


def shows_exception(lines: list[str]) -> bool:
    """Whether a Python exception is among the lines."""
    for line in lines:
        name = line.rpartition("]: ")[2] if line.startswith("[rank") else line
        name = name.partition(":")[0]
        if name.endswith(("Error", "Exception", "Interrupt")) and " " not in name:
            return True
    return False


def tail(path: bytes) -> list[str]:
    """A file's last lines, printable; of a line redrawn by carriage returns what it showed last."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        start = max(0, os.fstat(fd).st_size - 2 * TAIL_BYTES)
        lines = os.pread(fd, 2 * TAIL_BYTES, start).split(b"\n")
    except OSError:
        return []
    finally:
        os.close(fd)
    if start and any(lines[1:]):
        del lines[0]  # its beginning was not read
    kept: list[str] = []
    room = TAIL_BYTES
    for line in reversed(lines):
        text = printable(line.rstrip(b"\r").rsplit(b"\r", 1)[-1]).rstrip().encode()[-room:]
        if text:
            kept.insert(0, text.decode("utf-8", "ignore"))
            room -= len(text)
        if len(kept) == TAIL_LINES or room <= 0:
            break
    return kept
