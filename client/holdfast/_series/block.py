"""One worker's figures over a time, in slots of equal length, and their packed form.

The packed form holds numbers of the resolution that each figure has (see ``figures``), the bytes of equal weight side
by side and means as differences along time, so that deflating leaves half a byte a value. It is read by programs
that trust its writer with nothing: a host may send any bytes.
"""

from __future__ import annotations

import functools
import operator
import struct
import sys
import zlib
from array import array
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate, pairwise

from holdfast._base.dataclass import dataclass
from holdfast._series.figures import MOST, Figure, Join, stored, values_of

VERSION = 1
SLOTS_MOST, RANKS_MOST, CELLS_MOST = 512, 4_096, 1 << 16
PACKED_MOST = 1 << 20
_HEAD = struct.Struct("<BqHHHH")
"""Version, start, step, slots, ranks, bits of the figures."""
_FAR = 1 << 40


@dataclass(frozen=True, slots=True)
class Track:
    """One figure of one rank: a value for each slot, NaN where it isn't known."""

    mean: list[float]
    least: list[float]
    most: list[float]

    @classmethod
    def flat(cls, values: Iterable[float]) -> Track:
        """One whose extremes are its values."""
        held = list(values)
        return cls(held, held, held)


@dataclass(frozen=True, slots=True)
class Block:
    """``start`` is in Unix seconds on the host's clock, ``step`` the seconds of a slot. All tracks are as long."""

    start: int
    step: int
    slots: int
    tracks: Mapping[tuple[int, Figure], Track]

    @property
    def ranks(self) -> list[int]:
        """The numbers of its ranks, in order."""
        return sorted({rank for rank, _ in self.tracks})

    @property
    def end(self) -> int:
        """The end of its last slot, in Unix seconds."""
        return self.start + self.step * self.slots


def pack(block: Block) -> bytes:
    """The packed form. Raises ``ValueError`` for a block beyond the bounds."""
    ranks = block.ranks
    _check(block.start, block.step, block.slots, ranks)
    figures = sorted({figure for _, figure in block.tracks})
    parts = [array("i", ranks).tobytes() if sys.byteorder == "little" else _swapped(array("i", ranks))]
    unknown = [-1] * block.slots
    for figure in figures:
        means: list[int] = []
        lows: list[int] = []
        highs: list[int] = []
        for rank in ranks:
            track = block.tracks.get((rank, figure))
            if track is None:
                means += unknown
                lows += [0] * block.slots
                highs += [0] * block.slots
                continue
            mean = [stored(figure, value) for value in track.mean]
            means += mean
            if figure.form.join is Join.MEAN:
                lows += [_apart(at, stored(figure, low)) for at, low in zip(mean, track.least, strict=True)]
                highs += [_apart(stored(figure, high), at) for at, high in zip(mean, track.most, strict=True)]
        width = _width(figure)
        changes = [now - before for before, now in zip([0, *means[:-1]], means, strict=True)]
        parts.append(_planes([change << 1 if change >= 0 else ~(change << 1) for change in changes], width))
        if figure.form.join is Join.MEAN:
            parts += [_planes(lows, width), _planes(highs, width)]
    bits = sum(1 << figure for figure in figures)
    head = _HEAD.pack(VERSION, block.start, block.step, block.slots, len(ranks), bits)
    # Small differences with noise in them: what is meant for filtered data leaves 4 % less of them.
    deflating = zlib.compressobj(9, strategy=zlib.Z_FILTERED)
    return head + deflating.compress(b"".join(parts)) + deflating.flush()


@dataclass(frozen=True, slots=True)
class Head:
    """Time and ranks of a packed block; ``start``, ``step`` and ``slots`` as in ``Block``, the ranks in order."""

    start: int
    step: int
    slots: int
    ranks: list[int]

    @property
    def end(self) -> int:
        """The end of its last slot, in Unix seconds."""
        return self.start + self.step * self.slots


def head(data: bytes) -> Head:
    """Time and ranks of a packed block, at a fraction of what it costs to read it. Raises ``ValueError`` for others.

    Numbers that can't be are found by ``unpack`` alone.
    """
    return _opened(data)[0]


def shifted(data: bytes, by_s: int) -> bytes:
    """A packed block, so many seconds later. Raises ``ValueError`` for what is none, as far as its head tells."""
    if len(data) < _HEAD.size:
        raise ValueError("it is too short")
    version, start, *rest = _HEAD.unpack_from(data)
    if abs(start) > _FAR or abs(by_s) > _FAR:
        raise ValueError("its time is impossible")
    return _HEAD.pack(version, start + by_s, *rest) + data[_HEAD.size :]


def unpack(
    data: bytes,
    wanted: Collection[Figure] | None = None,
    ranks: Collection[int] | None = None,
    *,
    extremes: bool = True,
) -> Block:
    """The block, or of it what is wanted: figures, and ranks. Raises ``ValueError`` for what is no packed block.

    Without ``extremes`` the means stand for them, at half of what it costs to read those.
    """
    about, figures, body = _opened(data)
    cells = about.slots * len(about.ranks)
    tracks: dict[tuple[int, Figure], Track] = {}
    at = 4 * len(about.ranks)
    for figure in figures:
        width, planes = _width(figure), _planes_of(figure)
        if wanted is None or figure in wanted:
            read = [
                _plane(body[at + n * cells * width : at + (n + 1) * cells * width], width)
                for n in range(planes if extremes else 1)
            ]
            tracks |= _tracks(figure, about, read, ranks)
        at += planes * cells * width
    return Block(about.start, about.step, about.slots, tracks)


def _opened(data: bytes) -> tuple[Head, list[Figure], bytes]:
    """The head of a packed block, its figures, and the ranks and planes that were deflated."""
    if not _HEAD.size <= len(data) <= PACKED_MOST:
        raise ValueError("it is too short or too long")
    version, start, step, slots, count, bits = _HEAD.unpack_from(data)
    if version != VERSION or bits >> len(Figure):
        raise ValueError("it has a form or a figure of another release")
    if not (
        1 <= step <= 86_400 and 1 <= slots <= SLOTS_MOST and count <= RANKS_MOST and slots * count <= CELLS_MOST
    ):
        raise ValueError("it is beyond the bounds")
    figures = [figure for figure in Figure if bits >> figure & 1]
    cells = slots * count
    size = 4 * count + sum(cells * _width(figure) * _planes_of(figure) for figure in figures)
    opened = zlib.decompressobj()
    try:
        body = opened.decompress(data[_HEAD.size :], size + 1)
    except zlib.error as error:
        raise ValueError(f"it is damaged: {error}") from error
    if len(body) != size or not opened.eof or opened.unused_data:
        raise ValueError("it is cut off or goes on")
    ranks = list(struct.unpack_from(f"<{count}i", body))
    _check(start, step, slots, ranks)
    return Head(start, step, slots, ranks), figures, body


def _tracks(
    figure: Figure, about: Head, read: list[array[int]], wanted: Collection[int] | None
) -> dict[tuple[int, Figure], Track]:
    changes = map(_changes().__getitem__, read[0]) if read[0].itemsize == 2 else map(_change, read[0])
    means = list(accumulate(changes))
    lowest = min(means, default=0)
    if lowest < -1:
        raise ValueError("it holds a negative number")
    ranks, slots = about.ranks, about.slots
    apart = [list(plane) for plane in read[1:]]
    if wanted is not None:
        kept = [number for number, rank in enumerate(ranks) if rank in wanted]
        ranks = [ranks[number] for number in kept]
        means, *apart = (
            [n for at in kept for n in all_[at * slots : (at + 1) * slots]] for all_ in (means, *apart)
        )
    found = {}
    mean = values_of(figure, means)
    if apart:
        lows, highs = list(map(operator.sub, means, apart[0])), list(map(operator.add, means, apart[1]))
        # Mostly all are known and none is beyond its bounds: looking is cheaper than comparing each.
        if lowest < 0 or min(lows, default=0) < 0:
            lows = [max(0, low) if at >= 0 else -1 for at, low in zip(means, lows, strict=True)]
        if lowest < 0 or max(highs, default=0) > MOST:
            highs = [min(MOST, high) if at >= 0 else -1 for at, high in zip(means, highs, strict=True)]
        least, most = values_of(figure, lows), values_of(figure, highs)
    else:
        least = most = mean
    for number, rank in enumerate(ranks):
        part = slice(number * slots, (number + 1) * slots)
        found[rank, figure] = Track(mean[part], least[part], most[part])
    return found


def _change(written: int) -> int:
    """The difference that a number without a sign was written for."""
    return written >> 1 if not written & 1 else ~(written >> 1)


@functools.cache
def _changes() -> list[int]:
    """The difference for each number of two bytes; a table of 2.5 MB, which agents never need."""
    return [_change(written) for written in range(1 << 16)]


def _check(start: int, step: int, slots: int, ranks: list[int]) -> None:
    """Raises ``ValueError`` for what no agent makes."""
    if not (0 <= start < _FAR and 1 <= step <= 86_400 and 1 <= slots <= SLOTS_MOST):
        raise ValueError("its time is impossible")
    if len(ranks) > RANKS_MOST or slots * len(ranks) > CELLS_MOST:
        raise ValueError("it has too many ranks")
    if any(rank < 0 for rank in ranks) or any(a >= b for a, b in pairwise(ranks)):
        raise ValueError("its ranks are not in order")


def _width(figure: Figure) -> int:
    return 8 if figure is Figure.STEP else 2


def _planes_of(figure: Figure) -> int:
    return 3 if figure.form.join is Join.MEAN else 1


def _apart(more: int, less: int) -> int:
    return max(0, more - less) if less >= 0 and more >= 0 else 0


_TYPES = {2: "H", 8: "Q"}


def _planes(numbers: list[int], width: int) -> bytes:
    """First all lowest bytes, then all next ones."""
    held = array(_TYPES[width], numbers)
    data = held.tobytes() if sys.byteorder == "little" else _swapped(held)
    return b"".join(data[place::width] for place in range(width))


def _plane(data: bytes, width: int) -> array[int]:
    count = len(data) // width
    mixed = bytearray(len(data))
    for place in range(width):
        mixed[place::width] = data[place * count : (place + 1) * count]
    held = array(_TYPES[width], bytes(mixed))
    if sys.byteorder != "little":
        held.byteswap()
    return held


def _swapped(held: array[int]) -> bytes:
    held.byteswap()
    return held.tobytes()
