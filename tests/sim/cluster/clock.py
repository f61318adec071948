"""Clocks of machines: a monotonic one of its own speed and origin, and a wall clock that may be set."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.engine import Engine

WALL = 1_700_000_000.0


@dataclass
class Clock:
    """One machine's. ``rate`` is how many of its seconds pass in a true one."""

    engine: Engine
    rate: float = 1.0
    origin: float = 0.0
    jumped: float = 0.0
    """By how much the wall clock was set forward."""

    def mono(self) -> float:
        """Monotonic seconds; as seconds since boot too, since these machines never sleep."""
        return self.origin + self.rate * self.engine.now

    def wall(self) -> float:
        """Seconds since the epoch, as far as this machine knows."""
        return WALL + self.jumped + self.rate * self.engine.now

    def true_s(self, seconds: float) -> float:
        """How long its seconds take in truth."""
        return seconds / self.rate
