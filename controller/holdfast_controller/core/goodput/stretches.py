"""Stretches of steps: the history of a training's pace, over its whole life and in bounded memory.

Evaluations and saves between two steps are part of a stretch, since they come again. What lies between two
generations is part of none.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_controller.core.model.goodput import ProgressWatch, Reached, Stretch

MOST = 64
"""Stretches kept of a job; beyond, each two neighbours become one."""
SHORTEST_MS = 2_000
"""Agents look every two seconds."""


def note_stretch(watch: ProgressWatch, reached: Reached) -> None:
    """Take in a step of the running generation that is further than the newest before it."""
    began = watch.stretch_from
    if began is None:
        watch.stretch_from = reached
        return
    took = reached.at - began.at
    if took < max(watch.shortest_ms, SHORTEST_MS) or reached.step <= began.step:
        return
    watch.stretch_from = reached
    watch.stretches.append(Stretch(took, reached.step - began.step))
    if len(watch.stretches) > MOST:
        watch.stretches = thinned(watch.stretches)
        # A little less than those kept take, so that an even pace gives stretches of an even length.
        watch.shortest_ms = sum(each.ms for each in watch.stretches) * 3 // (4 * len(watch.stretches))


def thinned(stretches: Sequence[Stretch]) -> list[Stretch]:
    """At most ``MOST`` stretches of the same steps and time."""
    found = list(stretches)
    while len(found) > MOST:
        pairs = [found[index : index + 2] for index in range(0, len(found), 2)]
        found = [Stretch(sum(each.ms for each in pair), sum(each.steps for each in pair)) for pair in pairs]
    return found
