"""The signal that ranks get before they are stopped for time's sake, and how long before."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass

NOTICE_MOST_S = 120.0
"""The longest notice of a preemption or of a host's shutdown: others wait for the host."""


@dataclass(frozen=True)
class WarningSignal:
    """The signal that a job asks for, and how many seconds before a deadline that is known."""

    signal: int
    before_s: float

    @property
    def notice_s(self) -> float:
        """Seconds between the signal and a stop that no one saw coming."""
        return min(self.before_s, NOTICE_MOST_S)
