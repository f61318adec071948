"""A disk of its own in a file: frozen, or cut off from its power, by the kernel's own means."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN: _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2  # what is in memory only is lost, the file system's own log included


@dataclass(frozen=True)
class Disk:
    """An ext4 in ``image``, mounted at ``path``."""

    image: Path
    path: Path

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self.image), str(self.path))

    def power_on(self) -> None:
        """Mount what reached the image, as a disk of its own: the kernel may still hold the one before."""
        after = self.image.with_suffix(".after")
        shutil.copyfile(self.image, after)
        _run("umount", "-l", str(self.path))
        _run("mount", "-o", "loop", str(after), str(self.path))

    def freeze(self) -> None:
        """Whoever writes from now on waits in the kernel, deaf to every signal."""
        _run("fsfreeze", "-f", str(self.path))

    def thaw(self) -> None:
        _run("fsfreeze", "-u", str(self.path))

    def lose_power(self) -> None:
        """Nothing more reaches the image; it keeps what was synced."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"{command}: {done.stderr}"


@contextlib.contextmanager
def mounted(image: Path, path: Path, mib: int = 48) -> Iterator[Disk]:
    """A fresh disk, mounted; unmounted at the end whatever became of it. Needs ``require("loop")`` and root."""
    image.touch()
    os.truncate(image, mib << 20)
    _run("mkfs.ext4", "-q", str(image))
    path.mkdir(parents=True, exist_ok=True)
    disk = Disk(image, path)
    disk.mount()
    try:
        yield disk
    finally:
        subprocess.run(["fsfreeze", "-u", str(path)], capture_output=True, timeout=180)
        subprocess.run(["umount", "-l", str(path)], capture_output=True, timeout=180)
