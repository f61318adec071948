"""Reads recorded runs: JSON lines, gzipped or plain, one run a line, as gaps between lines of its log.

The only module of this package that touches a file. Fields of a run: ``run``, ``submitter``, ``system``,
``benchmark``, ``status``, ``start_ms``, ``gaps_ms``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast.errors import HoldfastError

# Longer gaps are clocks set while a run was going on; they are dropped with their time.
ABSURD_GAP_MS = 6 * 3600 * 1000


class CorpusError(HoldfastError):
    """A corpus that can't be read; the message names the line."""


@dataclass(frozen=True, slots=True)
class Run:
    """One healthy run: where it ran, and the seconds between its progress lines."""

    run: str
    submitter: str
    benchmark: str
    gaps_s: tuple[float, ...]


def read(path: Path) -> Iterator[Run]:
    """The runs of a file, one by one. Raises CorpusError for what is no corpus, OSError for what can't be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        try:
            yield from parsed(lines)
        except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
            raise CorpusError(f"{path}: {error}") from error


def parsed(lines: Iterable[str]) -> Iterator[Run]:
    """The runs in these lines; blank lines are passed over."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _run(line, number)


def _run(line: str, number: int) -> Run:
    try:
        record = json.loads(line)
        gaps_s = tuple(gap / 1000 for gap in record["gaps_ms"] if gap <= ABSURD_GAP_MS)
        if any(gap < 0 for gap in gaps_s):
            raise ValueError("a gap is negative")
        return Run(
            str(record.get("run", number)),
            str(record.get("submitter", "")),
            str(record.get("benchmark", "")),
            gaps_s,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise CorpusError(f"line {number} is no run: {problem}") from error
