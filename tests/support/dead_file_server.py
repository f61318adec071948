"""A mounted folder whose file server doesn't answer, or is gone: FUSE of the kernel, and nothing behind it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MNT_DETACH = 2


@dataclass
class DeadFileServer:
    """Until ``leave`` whoever looks into ``folder`` waits; since then each look fails with ``ENOTCONN``."""

    folder: Path
    _device: int

    def leave(self) -> None:
        """The server is gone; those who wait for it are told so. May be called again."""
        device, self._device = self._device, -1
        if device >= 0:
            os.close(device)


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[DeadFileServer]:
    """Mount one at ``folder``, which is made if need be. Raises ``OSError`` where this machine can't."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir(exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    server = DeadFileServer(folder, device)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    try:
        if libc.mount(b"none", bytes(folder), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
        try:
            yield server
        finally:
            server.leave()  # first, so that nothing waits any more
            libc.umount2(bytes(folder), MNT_DETACH)
    finally:
        server.leave()
