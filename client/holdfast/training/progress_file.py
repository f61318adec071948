"""Reads the files through which training loops report their progress; ``progress_calls`` has the layout."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.training.known_step import MOST_STEPS
from holdfast.training.progress_calls import DIRECTORY as DIRECTORY
from holdfast.training.progress_calls import (
    MAGIC,
    MARKS,
    MARKS_AT,
    NUMBER,
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
from holdfast.training.rank_progress import RankProgress

_LATEST_S = 1e10
"""Later than any host has run."""


def read(path: str, rank: int) -> RankProgress | None:
    """Read the file of a rank; None if it is missing or not written yet."""
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
    if not 0 <= at <= _LATEST_S:
        return None  # no clock has written that
    (pauses,) = NUMBER.unpack_from(data, PAUSES_AT)
    writer = WRITER.unpack_from(data, WRITER_AT)
    *marked_by, total, saved, resumed, resumes, saves, evaluations = MARKS.unpack_from(data, MARKS_AT)
    marked = tuple(marked_by) == writer
    # Earlier writers, and those without marks, may have a longer reason.
    words = data[REASON_AT : REASON_AT + REASON_BYTES] if marked else data[REASON_AT:]
    reason = words.rstrip(b"\0").decode(errors="replace") if pauses > 0 else None
    said = RankProgress(rank, reports, step if 0 <= step <= MOST_STEPS else None, at, reason)
    if not marked:
        return said
    steps = {"total": total, "saved": saved, "resumed": resumed}
    known = {name: step - 1 for name, step in steps.items() if 0 < step <= MOST_STEPS}
    return replace(said, **known, resumes=resumes, saves=saves > 0, evaluates=evaluations > 0)
