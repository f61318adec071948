"""Crashes at every effect of every actor, one at a time and in pairs: no randomness, no luck."""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.cluster.world import World
from tests.sim.plan import Plan


def effects(plan: Plan) -> list[str]:
    """What is done in a story in which nothing crashes, in order; each may be what somebody dies before."""
    world = run(plan, ())
    return world.effects


def run(plan: Plan, crash_at: tuple[int, ...]) -> World:
    """Tell a story, with crashes right before these effects (counted from 1). Raises ``Violation``."""
    world = World(plan)
    world.count_effects = True
    world.crash_at = frozenset(crash_at)
    world.run()
    return world


def pairs(count: int, stride: int) -> Iterator[tuple[int, int]]:
    """Every so-many-th pair of effects, ordered."""
    number = 0
    for first in range(1, count + 1):
        for second in range(first + 1, count + 1):
            number += 1
            if number % stride == 0:
                yield first, second
