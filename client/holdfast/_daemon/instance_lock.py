"""One daemon for each state directory: a lock that the kernel lets go of when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import StoreError, WrongState

WAIT_S = 5.0
"""For a predecessor that is about to end."""
_LOOK_S = 0.05


@contextmanager
def only_one(directory: Path, daemon: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the only ``daemon`` (such as "agent") of a directory while the block runs. Blocks up to ``wait_s``.

    Raises ``WrongState`` that names the pid of another one, and ``StoreError`` where no lock can be had.
    """
    path = directory / f"{daemon}.lock"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"Cannot open {path}: {error.strerror}.", fix="The daemon must own its state.") from error
    try:
        _lock(handle, directory, daemon, time.monotonic() + wait_s)
        _sign(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path, daemon: str, deadline: float) -> None:
    while True:
        try:
            # Not a POSIX lock: that goes with the first close of the file anywhere in the process.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
                raise WrongState(
                    f"Another {daemon}{holder and f' (pid {holder})'} runs on {directory}.",
                    fix="Stop it first, or name another state_dir.",
                ) from None
            time.sleep(_LOOK_S)
        except OSError as error:
            raise StoreError(
                f"Cannot lock {directory}: {error.strerror}.", fix="Put state_dir on a local file system."
            ) from error


def _sign(handle: int) -> None:
    """Write our pid into the lock file. It is for people only, so a full disk is ignored."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass
