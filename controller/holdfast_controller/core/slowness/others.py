"""Medians of many numbers but a few, for each few of them, without looking at all of them each time.

Theory of operation. The numbers are sorted once. The median of those that are left is found by its position: what was
left out before it moves it on. The distances of sorted numbers from a middle rise to both sides of it, so that the
median distance is where two sorted lists, the lower side read backwards and the upper one, merge in the middle; a
binary search finds it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property


class Sorted:
    """Numbers in order."""

    def __init__(self, values: list[float]) -> None:
        self._values = sorted(values)

    def middle_without(self, most: int) -> tuple[float, float]:
        """Bounds of the median of those that are left without any ``most`` of them, or fewer; some are left."""
        left = len(self._values) - most
        return self._values[max(left - 1, 0) // 2], self._values[min(left // 2 + most, len(self._values) - 1)]

    def without(self, few: Sequence[float]) -> Rest:
        """All but these, which are among them."""
        return Rest(self._values, few)


class Rest:
    """Numbers in order but a few of them."""

    def __init__(self, values: list[float], few: Sequence[float]) -> None:
        self._values = values
        # Positions of those that are left out, in order.
        self._out: list[int] = []
        for value in sorted(few):
            at = bisect_left(values, value)
            if self._out and at <= self._out[-1]:
                at = self._out[-1] + 1
            self._out.append(at)
        # How many are left before each of those.
        self._before = [at - number for number, at in enumerate(self._out)]
        self.count = len(values) - len(self._out)

    def _at(self, position: int) -> float:
        """The number at a position among those that are left."""
        return self._values[position + bisect_right(self._before, position)]

    @cached_property
    def median(self) -> float:
        """The same as by ``statistics.median``."""
        half = self.count // 2
        return self._at(half) if self.count % 2 else (self._at(half - 1) + self._at(half)) / 2

    @cached_property
    def deviation(self) -> float:
        """The median distance from the median."""
        half = self.count // 2
        if self.count % 2:
            return self._distance(half)
        return (self._distance(half - 1) + self._distance(half)) / 2

    def _distance(self, number: int) -> float:
        """The distance from the median that so many others are not above."""
        middle, below = self.median, self.count // 2
        # ``low`` of the nearest are taken from below the middle, the others from its other side.
        low, high = max(0, number + 1 - (self.count - below)), min(below, number + 1)
        while low < high:
            taken = (low + high) // 2
            if abs(self._at(below - 1 - taken) - middle) < abs(self._at(below + number - taken) - middle):
                low = taken + 1
            else:
                high = taken
        nearest = []
        if low:
            nearest.append(abs(self._at(below - low) - middle))
        if low <= number:
            nearest.append(abs(self._at(below + number - low) - middle))
        return max(nearest)
