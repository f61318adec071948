"""Reads the files through which training loops report their progress; ``progress_calls`` has the layout."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from holdfast.training.progress_calls import DIRECTORY as DIRECTORY
from holdfast.training.progress_calls import (
    MAGIC,
    PAUSES,
    PAUSES_AT,
    REASON_AT,
    REASON_BYTES,
    REPORT,
    REPORT_AT,
    SIZE,
    WRITER,
    WRITER_AT,
)
from holdfast.training.progress_calls import path_for as path_for


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress reported by a rank. ``at`` is CLOCK_BOOTTIME seconds; ``step`` is None before the first."""

    reports: int
    step: int | None
    at: float
    pid: int
    idle_reason: str | None
    """Why it is in a declared pause; None when it isn't."""


def read(path: str) -> Progress | None:
    """Read the file; None if it is missing or not written yet."""
    try:
        # The folder is the worker's: whatever lies there must neither block nor lead elsewhere.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.read(handle, SIZE)
        finally:
            os.close(handle)
    except OSError:
        return None
    if len(data) < SIZE or data[:8] != MAGIC:
        return None
    reports, step, at = REPORT.unpack_from(data, REPORT_AT)
    if not math.isfinite(at):
        return None  # no clock has written that
    (pauses,) = PAUSES.unpack_from(data, PAUSES_AT)
    pid, _ = WRITER.unpack_from(data, WRITER_AT)
    reason = data[REASON_AT : REASON_AT + REASON_BYTES].rstrip(b"\0").decode(errors="replace")
    return Progress(reports, None if step < 0 else step, at, pid, reason if pauses > 0 else None)
