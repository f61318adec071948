"""Tells when a file has been written to (inotify), without looking at it again and again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator

_IN_MODIFY = 0x2
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class FileWatch:
    """One inotify instance. If the kernel grants none, it reports nothing and callers look by themselves."""

    def __init__(self) -> None:
        self._handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._events: dict[int, set[asyncio.Event]] = {}
        if self._handle >= 0:
            asyncio.get_running_loop().add_reader(self._handle, self._read)

    @contextlib.contextmanager
    def watched(self, path: str, event: asyncio.Event) -> Iterator[None]:
        """Set ``event`` whenever the file is written to."""
        watch = _libc.inotify_add_watch(self._handle, os.fsencode(path), _IN_MODIFY) if self._handle >= 0 else -1
        if watch < 0:
            yield
            return
        events = self._events.setdefault(watch, set())
        events.add(event)
        try:
            yield
        finally:
            events.discard(event)
            if not events and self._events.pop(watch, None) is not None and self._handle >= 0:
                _libc.inotify_rm_watch(self._handle, watch)

    def close(self) -> None:
        """Tell nothing more."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _read(self) -> None:
        try:
            data = os.read(self._handle, 1 << 16)
        except BlockingIOError:
            return
        position = 0
        while position < len(data):
            watch, _, _, length = _HEAD.unpack_from(data, position)
            position += _HEAD.size + length
            for event in self._events.get(watch, ()):
                event.set()
