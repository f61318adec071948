"""Joins blocks of one or many workers into slots of another length: hours of minutes, points of a chart.

Means are weighted by the samples behind them, so that a minute that was cut in two by a restart is one minute again.
"""

from __future__ import annotations

import math
import operator
from array import array
from collections.abc import Iterable, Iterator

from holdfast._base.dataclass import dataclass
from holdfast._series.block import Block, Track
from holdfast._series.figures import Figure, Join

UNKNOWN = math.nan


class _Sums:
    """Sums of one figure of one rank."""

    def __init__(self, slots: int) -> None:
        self.total = array("d", bytes(8 * slots))
        self.weight = array("d", bytes(8 * slots))
        self.least = array("d", [math.inf]) * slots
        self.most = array("d", [-math.inf]) * slots

    def track(self, figure: Figure, *, extremes: bool) -> Track:
        """The joined values."""
        known = [weight > 0 for weight in self.weight]
        if figure.form.join is Join.MEAN:
            mean = [
                total / weight if weight else UNKNOWN for total, weight in zip(self.total, self.weight, strict=True)
            ]
            if not extremes:
                return Track.flat(mean)
            least = [value if there else UNKNOWN for value, there in zip(self.least, known, strict=True)]
            most = [value if there else UNKNOWN for value, there in zip(self.most, known, strict=True)]
            return Track(mean, least, most)
        return Track.flat(value if there else UNKNOWN for value, there in zip(self.total, known, strict=True))


class Joining:
    """Slots of ``step`` seconds from ``start`` on, which blocks are added to in the order of their time.

    A slot that a block covers in part counts as covered where the block's slot begins. Without ``extremes`` the means
    stand for them.
    """

    def __init__(self, start: int, step: int, slots: int, *, extremes: bool = True) -> None:
        self.start, self.step, self.slots = start, step, slots
        self._extremes = extremes
        self._sums: dict[tuple[int, Figure], _Sums] = {}

    def add(self, block: Block) -> None:
        """Take in what of a block lies within. Blocks of longer slots than ours fill those that begin within them."""
        if block.end <= self.start or block.start >= self.start + self.step * self.slots:
            return
        spans = list(self._spans(block))
        weights = {
            rank: [_Weight.of(track.mean[first:last]) for _, first, last in spans]
            for (rank, figure), track in block.tracks.items()
            if figure is Figure.SAMPLES
        }
        even = [_Weight.of([]) for _ in spans]
        for (rank, figure), track in block.tracks.items():
            sums = self._sums.get((rank, figure))
            if sums is None:
                sums = self._sums[rank, figure] = _Sums(self.slots)
            if figure.form.join is Join.MEAN:
                _add_means(sums, track, spans, weights.get(rank, even), extremes=self._extremes)
            else:
                for slot, first, last in spans:
                    _add(sums, slot, figure.form.join, track.mean[first:last])

    def block(self) -> Block:
        """The slots, as filled so far."""
        tracks = {key: sums.track(key[1], extremes=self._extremes) for key, sums in self._sums.items()}
        return Block(self.start, self.step, self.slots, tracks)

    def _spans(self, block: Block) -> Iterator[tuple[int, int, int]]:
        """(Our slot, the block's first and the one after the last that fall into it)."""
        if block.step > self.step:
            for ours in range(self.slots):
                at = (self.start + ours * self.step - block.start) // block.step
                if 0 <= at < block.slots:
                    yield ours, at, at + 1
            return
        slot: int | None = None
        first = 0
        for at in range(block.slots):
            found = (block.start + at * block.step - self.start) // self.step
            if found != slot:
                if slot is not None and 0 <= slot < self.slots:
                    yield slot, first, at
                slot, first = found, at
        if slot is not None and 0 <= slot < self.slots:
            yield slot, first, block.slots


@dataclass(frozen=True, slots=True)
class _Weight:
    """Samples behind the values that fall into one slot; all alike where ``each`` is set, unknown where that is 0."""

    each: float | None
    counts: list[float]

    @classmethod
    def of(cls, counts: list[float]) -> _Weight:
        if not counts or not sum(counts) > 0:
            return cls(0.0, counts)
        return cls(counts[0] if counts.count(counts[0]) == len(counts) else None, counts)


def _add_means(
    sums: _Sums, track: Track, spans: list[tuple[int, int, int]], weights: list[_Weight], *, extremes: bool
) -> None:
    for (slot, first, last), weight in zip(spans, weights, strict=True):
        values, known = track.mean[first:last], None
        total, counts, each = sum(values), weight.counts, weight.each
        if math.isnan(total):
            known = [at for at, value in enumerate(values) if not math.isnan(value)]
            if not known:
                continue
            values = [values[at] for at in known]
            total, counts = sum(values), [counts[at] for at in known] if counts else []
            each = _Weight.of(counts).each
        if each is None:
            sums.total[slot] += sum(map(operator.mul, values, counts))
            sums.weight[slot] += sum(counts)
        else:
            sums.total[slot] += total * (each or 1.0)
            sums.weight[slot] += len(values) * (each or 1.0)
        if not extremes:
            continue
        least, most = track.least[first:last], track.most[first:last]
        if known is not None:
            least, most = ([held[at] for at in known] for held in (least, most))
        low, high = min(least), max(most)
        if low < sums.least[slot]:
            sums.least[slot] = low
        if high > sums.most[slot]:
            sums.most[slot] = high


def _add(sums: _Sums, slot: int, join: Join, values: list[float]) -> None:
    known = [value for value in values if not math.isnan(value)] if math.isnan(sum(values)) else values
    if not known:
        return
    match join:
        case Join.SUM:
            sums.total[slot] += sum(known)
        case Join.ANY:
            bits = int(sums.total[slot])
            for value in known:
                bits |= int(value)
            sums.total[slot] = bits
        case _:
            sums.total[slot] = known[-1]
    sums.weight[slot] = 1.0


def joined(blocks: Iterable[Block], start: int, step: int, slots: int) -> Block:
    """The blocks put together in these slots."""
    joining = Joining(start, step, slots)
    for block in blocks:
        joining.add(block)
    return joining.block()


# --- many ranks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Band:
    """The value at each slot that the share ``quantile`` of the ranks does not exceed; NaN where none is known."""

    quantile: float
    values: list[float]


QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
OUTLIERS = 8


def bands(block: Block, figure: Figure) -> list[Band]:
    """How a figure is spread over the ranks, slot by slot."""
    columns = zip(*(track.mean for (_, each), track in block.tracks.items() if each is figure), strict=True)
    rows: list[tuple[float, ...]] = []
    for column in columns:
        known = sorted(value for value in column if not math.isnan(value))
        rows.append(tuple(known[round(q * (len(known) - 1))] if known else UNKNOWN for q in QUANTILES))
    return [Band(q, [row[number] for row in rows]) for number, q in enumerate(QUANTILES)]


def outliers(block: Block, figure: Figure) -> list[int]:
    """The ranks that differ from the others' median over the whole time, the farthest first."""
    means: dict[int, float] = {}
    for (rank, each), track in block.tracks.items():
        known = [value for value in track.mean if not math.isnan(value)] if each is figure else []
        if known:
            means[rank] = sum(known) / len(known)
    if len(means) < 3:
        return []
    ordered = sorted(means.values())
    median = ordered[len(ordered) // 2]
    apart = {rank: abs(value - median) for rank, value in means.items()}
    usual = sorted(apart.values())[len(apart) // 2]
    far = [rank for rank, distance in apart.items() if distance > 3 * usual and distance > 0.05 * abs(median)]
    return sorted(far, key=lambda rank: (-apart[rank], rank))[:OUTLIERS]
