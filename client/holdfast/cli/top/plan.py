"""When the controller is asked for what: after a change, not too often; without one, now and then. Pure."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field


class What(enum.Enum):
    """Answers that no stream brings."""

    STATUS = "status"
    JOBS = "jobs"
    # The goodput of one job in view.
    GOODPUT = "goodput"
    # The load of GPUs of hosts in view.
    LOAD = "load"


LEAST_S = {What.STATUS: 5.0, What.JOBS: 3.0, What.GOODPUT: 0.5, What.LOAD: 5.0}
"""Between two questions, however much changes: many may watch one controller."""
MOST_S = {What.STATUS: 30.0, What.JOBS: 10.0, What.GOODPUT: 30.0, What.LOAD: 60.0}
"""Between two questions without any change: steps and ages are no events. Load is known by the minute."""


@dataclass
class Plan:
    """Times are seconds on one clock that never steps back."""

    pages: int = 1
    """Pages that the list of jobs takes; it is asked for less often the longer it is."""
    _asked: dict[What, float] = field(default_factory=lambda: dict.fromkeys(What, -math.inf))
    _changed: set[What] = field(default_factory=lambda: set(What))

    def changed(self, *what: What) -> None:
        """Note that an answer of before is out of date."""
        self._changed.update(what)

    def now(self, what: What) -> None:
        """Ask for it at once: the user waits."""
        self._changed.add(what)
        self._asked[what] = -math.inf

    def asked(self, what: What, now: float) -> None:
        """Note that it is being asked for."""
        self._asked[what] = now
        self._changed.discard(what)

    def due(self, now: float) -> list[What]:
        """Return what has to be asked for now."""
        return [what for what in What if self._at(what) <= now]

    def next(self, now: float) -> float:
        """Seconds until something is due."""
        return max(0.0, min(map(self._at, What)) - now)

    def _at(self, what: What) -> float:
        least = LEAST_S[what] * (self.pages if what is What.JOBS else 1)
        return self._asked[what] + (least if what in self._changed else max(MOST_S[what], least))
