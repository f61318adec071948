"""The pace of a training: the time of a step of late, and by how much it is slower than in the job's best hour.

A point is kept about once a minute. The median over the stretches between points counts, so that an evaluation or a
slow save between two of them does not make the training look slow.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from holdfast_controller.core.model.goodput import LONGEST_MS, MOST_SLOWER, SHORTEST_MS, ProgressWatch, Reached

EVERY_MS = 60_000
RECENT, HOUR = 10, 60
"""Stretches of a minute or more that make the recent pace, and an hour's."""
SLOWER = 1.1
"""A smaller difference from the best hour is as usual."""


def note_pace(watch: ProgressWatch, reached: Reached) -> None:
    """Take in a step that is further than the newest point."""
    points = watch.pace
    if points and (reached.at - points[-1].at < EVERY_MS or reached.step <= points[-1].step):
        return
    points.append(reached)
    del points[: -(HOUR + 1)]
    if len(points) > HOUR:
        hour_ms = _step_ms(points)
        watch.best_hour_ms = min(watch.best_hour_ms or hour_ms, hour_ms)


def pace_in_words(watch: ProgressWatch | None) -> str:
    """Such as ``1.42 s a step, as usual``, ``12.00 s each`` of epochs; empty until there are ten minutes of steps."""
    if watch is None or len(watch.pace) <= RECENT:
        return ""
    recent_ms = _step_ms(watch.pace[-(RECENT + 1) :])
    is_step = watch.last is None or watch.last.of is None
    words = f"{duration(recent_ms)} {'a step' if is_step else 'each'}"
    if not watch.best_hour_ms:
        return words
    slower = min(recent_ms / max(watch.best_hour_ms, SHORTEST_MS), MOST_SLOWER)
    if slower < SLOWER:
        return f"{words}, as usual"
    return f"{words}, {100 * (slower - 1):.0f} % slower than in its best hour"


def duration(ms: float) -> str:
    """``48 ms``, ``1.42 s`` or ``3.5 min``."""
    if ms < 999.5:
        return f"{ms:.0f} ms" if ms >= 9.5 else f"{ms:.1f} ms"
    return f"{ms / 1000:.2f} s" if ms < 120_000 else f"{ms / 60_000:.1f} min"


def _step_ms(points: list[Reached]) -> float:
    found = median((after.at - before.at) / (after.step - before.step) for before, after in pairwise(points))
    return min(max(found, SHORTEST_MS), LONGEST_MS)
