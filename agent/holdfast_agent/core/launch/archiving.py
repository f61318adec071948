"""When output that could not be copied is tried again, and until when."""

from __future__ import annotations

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
MOST_TRIES = 150
"""With their pauses they take a day. They are counted, since a wall clock that is set must not end them early."""


def pause_s(failures: int) -> float:
    """Seconds from the last failure of so many in a row to the next try; doubles."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE_S)


def is_due(next_try: float, now: float) -> bool:
    """Whether to try again. A time further off than any pause is what a wall clock that was set back has left."""
    return not now < next_try <= now + LONGEST_PAUSE_S


def in_words(problem: str, failures: int) -> str:
    """A copy's problem as a sentence for the job's page, and whether the copy is tried again."""
    return f"{problem}; given up" if failures >= MOST_TRIES else f"{problem}; tried again"
