"""What the agent makes of a progress file that no training has written, or not wholly."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from holdfast.training import progress_calls, progress_file


@pytest.mark.parametrize("content", [b"", b"HFPROG1\n", b"x" * 256])
def test_a_file_that_is_not_written_yet_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r0.progress"
    path.write_bytes(content)
    assert progress_file.read(str(path), 0) is None
    assert progress_file.read(str(tmp_path / "none"), 0) is None


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, -1.0, -1e308, 1e300])
def test_a_time_that_no_clock_has_is_no_report(tmp_path: Path, at: float) -> None:
    """It would make all that the agent says of its worker worthless."""
    data = bytearray(progress_calls.SIZE)
    data[:8] = progress_calls.MAGIC
    progress_calls.REPORT.pack_into(data, progress_calls.REPORT_AT, 1, 5, at)
    (tmp_path / "r0.progress").write_bytes(data)
    assert progress_file.read(str(tmp_path / "r0.progress"), 0) is None


def test_what_is_no_step_is_unknown(tmp_path: Path) -> None:
    data = bytearray(progress_calls.SIZE)
    data[:8] = progress_calls.MAGIC
    progress_calls.REPORT.pack_into(data, progress_calls.REPORT_AT, 1, 2**60, 5.0)
    progress_calls.MARKS.pack_into(data, progress_calls.MARKS_AT, 0, 0, 2**60, 2**60, 8, 0, 0, 0)
    (tmp_path / "r0.progress").write_bytes(data)
    found = progress_file.read(str(tmp_path / "r0.progress"), 0)
    assert found is not None
    assert (found.step, found.total, found.saved, found.resumed) == (None, None, None, 7)
