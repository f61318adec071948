"""Waits that double after each failure in a row, up to a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random  # only its holder draws: cores take the plain wait

_DOUBLINGS_MAX = 32
"""Far beyond any bound, and far from overflow."""


def wait_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return how long to wait after this many failures in a row: ``first_s`` after one, then doubling."""
    return min(longest_s, first_s * 2.0 ** min(max(failures - 1, 0), _DOUBLINGS_MAX))


class Backoff:
    """Counts failures in a row, and draws each wait between half of it and all of it.

    So the many clients of a server that restarts do not come back in the same moment.
    """

    def __init__(self, first_s: float, longest_s: float, rng: Random) -> None:
        self._bounds = first_s, longest_s
        self._rng = rng
        self._failures = 0

    def failed(self) -> float:
        """Count a failure; return the seconds to wait before the next try."""
        self._failures += 1
        return wait_s(self._failures, *self._bounds) * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start from the first wait again: a try has succeeded."""
        self._failures = 0
