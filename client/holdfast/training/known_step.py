"""Which numbers are steps: programs print and report whatever they like, and arithmetic on it must not overflow."""

from __future__ import annotations

MOST_STEPS = 2.0**53
"""Up to here each whole number has a float of its own; a job file's ``progressTotal`` ends here, too."""
_DIGITS = 6


def known_step(step: float | None) -> float | None:
    """The step to a millionth; None where it is no number from 0 to ``MOST_STEPS``."""
    return round(step, _DIGITS) if step is not None and 0 <= step <= MOST_STEPS else None
