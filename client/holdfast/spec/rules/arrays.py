"""Arrays as Slurm writes them: ``0-99``, ``1,3,7``, ``1-20:2``, each with ``%4`` for four at once."""

from __future__ import annotations

import re

from holdfast._base.dataclass import dataclass

ARRAY_CHARS = 8_000
ELEMENTS_MOST = 1_000
"""Jobs of one array: one commit makes them all, and each counts as one that waits."""
INDEX_MOST = 999_999
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_AT_ONCE = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class ArrayIndices:
    """The indices, lowest first, and how many of the jobs may run at once; 0: all. No index: one job, no array."""

    indices: tuple[int, ...] = ()
    at_once: int = 0


def read_array(text: str) -> ArrayIndices:
    """The array that ``text`` describes; empty is none. Raises ``ValueError`` with the problem in words."""
    if not text:
        return ArrayIndices()
    listed, percent, most = text.partition("%")
    if percent and (not _AT_ONCE.fullmatch(most) or not int(most)):
        raise ValueError(f"{most[:20]!r} behind % is no number above 0")
    found: set[int] = set()
    for part in listed.split(","):
        for index in _range(part):
            if index in found:
                raise ValueError(f"names the index {index} twice")
            found.add(index)
        if len(found) > ELEMENTS_MOST:
            raise ValueError(f"has more than {ELEMENTS_MOST:,} indices")
    return ArrayIndices(tuple(sorted(found)), int(most or 0))


def _range(part: str) -> range:
    read = _PART.fullmatch(part)
    if read is None:
        raise ValueError(f"{part[:20]!r} is no index or range")
    first, last, step = int(read[1]), int(read[2] or read[1]), int(read[3] or 1)
    if last < first:
        raise ValueError(f"the range {part} ends before it begins")
    if not step:
        raise ValueError(f"the range {part} has the step 0")
    if last > INDEX_MOST:
        raise ValueError(f"the index {last:,} is above {INDEX_MOST:,}")
    found = range(first, last + 1, step)
    if len(found) > ELEMENTS_MOST:
        raise ValueError(f"has more than {ELEMENTS_MOST:,} indices")
    return found
