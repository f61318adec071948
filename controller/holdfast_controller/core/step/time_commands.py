"""The passing of time, as an input; see ``commands``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass


@dataclass(frozen=True)
class TimePassed:
    """A timer that the reactor asked for is due."""

    full: frozenset[str] = frozenset()
    """Users and projects, such as ``user/ann``, whose jobs take all of the controller's disk that they may."""
    durable: int | None = None
    """Number of the newest event that is durable; None: all are."""


@dataclass(frozen=True)
class StoodStill:
    """For so many seconds, until now, the controller ran nothing and so heard nothing."""

    for_s: float
