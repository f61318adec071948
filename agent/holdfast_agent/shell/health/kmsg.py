"""Reads the kernel's log, without ever waiting for it. A host where it can't be read is one without its word."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from holdfast_agent.core.health.kernel_log import DriverLoaded, Said, SwitchError, parse

MOST_RECORDS = 5000
"""Read in one look; what is left is read in the next."""
MOST_TOLD = 64
_RECORD_BYTES = 8192


def _open() -> int:
    return os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class KernelLog:
    """The log from its oldest record on. ``start`` opens it: each read gives one record, and none waits."""

    def __init__(self, start: Callable[[], int] = _open) -> None:
        self._open = start
        self._file: int | None = None
        self.caught_up = False
        """What is read from now on was said while this agent runs."""

    def news(self) -> list[Said]:
        """Words about NVIDIA's hardware since the last look: the first of them, where that is a flood.

        That the driver was loaded ends a flood: nothing that follows is lost for what was said before.
        """
        if self._file is None:
            try:
                self._file = self._open()
            except OSError:
                return []
        told: list[Said] = []
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(self._file, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # the kernel has overwritten what was next
                break
            if not record:
                break
            found = parse(record)
            if isinstance(found, DriverLoaded):
                told = [each for each in told if isinstance(each, SwitchError)]
            if found is not None and (len(told) < MOST_TOLD or isinstance(found, DriverLoaded)):
                told.append(found)
        else:
            return told
        self.caught_up = True
        return told

    def close(self) -> None:
        """Let go of the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
