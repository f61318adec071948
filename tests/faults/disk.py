"""A small ext4 of the test's own on a loop device, which can lose its power, fill up, or turn read-only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXT4_IOC_SHUTDOWN = 0x8004587D
"""_IOR('X', 125, __u32), from the kernel's fs/ext4/ext4.h."""
NOLOGFLUSH = 2
"""What is in the journal's memory only is lost, as it is when the power goes."""
SIZE_MIB = 2048
"""An agent wants a GiB to be free. The image is sparse, and so stays what fills it."""


@dataclass(frozen=True)
class Disk:
    """Mounted at ``path``."""

    image: Path
    path: Path

    def mount(self) -> None:
        """Attach it; what its journal holds is replayed."""
        _run("mount", "-o", "loop,errors=continue", str(self.image), str(self.path))

    def replug(self) -> None:
        """What has reached the disk, attached anew: the power has come back.

        As a copy: a stranger's mount namespace may hold on to the disk that was, and it would come back as it is.
        """
        _run("umount", "--lazy", str(self.path))
        copy = self.image.with_suffix(".copy")
        _run("cp", "--sparse=always", str(self.image), str(copy))
        copy.replace(self.image)
        self.mount()

    def sync(self) -> None:
        """Make durable what is there now."""
        _run("sync", "--file-system", str(self.path))

    def cut_power(self) -> None:
        """From now on nothing reaches the disk any more, and what was not synced never does."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)

    def turn_read_only(self) -> None:
        """As the kernel does when it has met an error on the disk."""
        _run("mount", "-o", "remount,abort", str(self.path))
        with contextlib.suppress(OSError):
            (self.path / "probe").write_text("the first to write meets the error")

    def fill(self) -> Path:
        """Take every block there is; returns the file to remove again."""
        filler = self.path / "filler"
        fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
        try:
            for size in (1 << 26, 1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(fd, os.fstat(fd).st_size, size)
        finally:
            os.close(fd)
        return filler


@contextlib.contextmanager
def loop_disk(directory: Path) -> Iterator[Disk]:
    """A fresh one, mounted; unmounted at the end, whatever still holds it."""
    disk = Disk(directory / "disk.img", directory / "disk")
    with disk.image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    # No reserved blocks: for root a full disk would not be full.
    _run("mkfs.ext4", "-q", "-F", "-m", "0", str(disk.image))
    disk.path.mkdir()
    disk.mount()
    try:
        yield disk
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            while os.path.ismount(disk.path):
                _run("umount", "--lazy", str(disk.path))


def works(directory: Path) -> bool:
    """Whether this machine lets us have such a disk."""
    try:
        with loop_disk(directory) as disk:
            disk.cut_power()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def is_cut(path: Path) -> bool:
    """Whether nothing can be written there any more."""
    try:
        path.write_text("")
    except OSError as error:
        return error.errno in (errno.EIO, errno.EROFS)
    return False


def _run(*command: str) -> None:
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=180)
