"""Families of metrics, and what was counted of them. Pure: no clock, no I/O, nothing of Prometheus' own library.

A family is declared once, with its labels; a ``Series`` holds values by family and label values. Most label values come
from closed sets (states, reasons, methods). Others, such as the version that an agent reports, are cut to one printable
line, and a family has at most ``SERIES_MOST`` series; what comes beyond them counts as ``OTHER``.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterator

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of what should take milliseconds."""
LONG_SECONDS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14_400.0, 86_400.0)
"""Bounds of what takes seconds when all is well, and hours when it isn't."""


SERIES_MOST = 20_000
"""Of one family; twice as many as hosts in the largest cluster that was tried."""
LABEL_MOST = 128
OTHER = "(other)"


class Kind(enum.Enum):
    """Metric types by Prometheus's names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """One metric. ``name`` as Prometheus shows it: base unit last, ``_total`` for counters."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram, ascending; above the last one there is one more bucket."""

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for a declaration that breaks the rules of names."""
        if not self.name.startswith("holdfast_") or not self.help.endswith("."):
            raise ValueError(f"{self.name}: begin with holdfast_, and explain it in a sentence")
        if (self.kind is Kind.COUNTER) is not self.name.endswith("_total"):
            raise ValueError(f"{self.name}: counters, and no others, end in _total")
        if (self.kind is Kind.HISTOGRAM) is not bool(self.bounds) or list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError(f"{self.name}: histograms, and no others, have ascending bounds")


def counter(name: str, help: str, *labels: str) -> Family:
    """A family of counters."""
    return Family(name, Kind.COUNTER, help, labels)


def gauge(name: str, help: str, *labels: str) -> Family:
    """A family of gauges."""
    return Family(name, Kind.GAUGE, help, labels)


def histogram(name: str, help: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> Family:
    """A family of histograms."""
    return Family(name, Kind.HISTOGRAM, help, labels, bounds)


class Histogram:
    """Counts of observed values by bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value; one that a clock has made negative counts as 0."""
        value = max(value, 0.0)
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound as text, values up to it), the last one +Inf."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


Value = float | Histogram


class Series:
    """Values by family and label values."""

    def __init__(self) -> None:
        self._values: dict[Family, dict[tuple[str, ...], Value]] = {}

    def add(self, family: Family, *labels: str, by: float = 1.0) -> None:
        """A counter goes up."""
        values, labels = self._of(family, labels)
        before = values.get(labels, 0.0)
        assert not isinstance(before, Histogram)
        values[labels] = before + by

    def set(self, family: Family, value: float, *labels: str) -> None:
        """Set a gauge, or a counter that is kept elsewhere, to ``value``."""
        values, labels = self._of(family, labels)
        values[labels] = float(value)

    def observe(self, family: Family, value: float, *labels: str) -> None:
        """A histogram takes a value in."""
        values, labels = self._of(family, labels)
        found = values.get(labels)
        if found is None:
            found = values[labels] = Histogram(family.bounds)
        assert isinstance(found, Histogram)
        found.observe(value)

    def declare(self, family: Family, *labels: str) -> None:
        """Begin a counter or histogram at nothing, so that its first increase is seen as one."""
        values, labels = self._of(family, labels)
        values.setdefault(labels, Histogram(family.bounds) if family.kind is Kind.HISTOGRAM else 0.0)

    def of(self, family: Family) -> dict[tuple[str, ...], Value]:
        """The values of one family, by label values."""
        return self._values.get(family, {})

    def __iter__(self) -> Iterator[Family]:
        return iter(self._values)

    def _of(self, family: Family, labels: tuple[str, ...]) -> tuple[dict[tuple[str, ...], Value], tuple[str, ...]]:
        """(the family's values, the labels under which a value is kept)."""
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {family.labels}, not {len(labels)} of them")
        values = self._values.get(family)
        if values is None:
            values = self._values[family] = {}
        if labels not in values:
            labels = tuple(one_line(label, LABEL_MOST) for label in labels)
            if labels not in values and len(values) >= SERIES_MOST:
                labels = (OTHER,) * len(labels)
        return values, labels
