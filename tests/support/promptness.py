"""That something is done at once, on a machine that may stand still at any moment.

A machine that stands still makes one attempt slow; code that waits for what it need not makes every attempt slow. So
some are made, and one that is in time is enough. Where a wait would be far longer than any stall, such as a grace of
ten minutes, no attempts are needed: assert less than that.
"""

from __future__ import annotations

from collections.abc import Callable

ATTEMPTS = 5


def assert_prompt(limit_s: float, attempt: Callable[[int], float]) -> None:
    """``attempt``, given its number from 1 on, returns how long it took: less than ``limit_s``, once at least."""
    took: list[float] = []
    while not took or took[-1] >= limit_s:
        assert len(took) < ATTEMPTS, f"never within {limit_s:g} s: {', '.join(f'{each:.2f} s' for each in took)}"
        took.append(attempt(len(took) + 1))
