"""The two clocks of a step, as types that mypy keeps apart.

Decisions are timed on the monotonic clock. Wall-clock times are for people, and for deadlines that must outlive a
restart of the controller, which begins a new monotonic clock. Only the methods of ``Now`` convert between the two.
Where the wall clock is set, ``fold.clock`` moves the stored times along from which a duration is counted.
"""

from __future__ import annotations

import math
from typing import NewType

from holdfast._base.dataclass import dataclass

Mono = NewType("Mono", float)
"""Seconds on this process' monotonic clock; meaningless in any other process."""
Wall = NewType("Wall", float)
"""Seconds since the epoch; jumps when the clock is set."""
BOOT = Mono(0.0)
"""Before every monotonic time of a step."""
NEVER = Wall(0.0)
"""Stands for no time in fields that hold a time only while something else is set."""


def named(seconds: float) -> Wall:
    """A time that was named, in seconds since the epoch, which is never ``NEVER``."""
    return Wall(seconds or -1.0)


def time_of_day(moment: Wall) -> str:
    """A moment's time of day, such as ``13:05:07 UTC``."""
    seconds = int(moment) % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} UTC"


def moment(at: Wall, now: Now) -> str:
    """``13:05:07 UTC``, or ``2026-11-20 13:05 UTC`` where that is half a day from now or more."""
    if abs(at - now.wall) < 43_200:
        return time_of_day(at)
    days, seconds = divmod(int(at), 86_400)
    return f"{_day(days)} {seconds // 3600:02}:{seconds // 60 % 60:02} UTC"


def minute(at: Wall, now: Now) -> str:
    """``13:05 UTC``, or ``2026-11-20 13:05 UTC`` where that is half a day from now or more."""
    found = moment(at, now)
    return found if len(found) > len("13:05:07 UTC") else f"{found[:5]} UTC"


def _day(since_1970: int) -> str:
    """A date of the Gregorian calendar, whose 400 years have 146,097 days; here each year begins in March."""
    cycle, left = divmod(since_1970 + 719_468, 146_097)
    year = (left - left // 1_460 + left // 36_524 - left // 146_096) // 365
    left -= 365 * year + year // 4 - year // 100
    month = (5 * left + 2) // 153
    day = left - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return f"{400 * cycle + year + (month <= 2):04}-{month:02}-{day:02}"


@dataclass(slots=True)
class ClockTrust:
    """Whether the wall clock is to be believed, by which ages of stored things are judged."""

    ahead_s: float | None = None
    """Wall clock less monotonic clock, at the last look."""
    again_at: Mono = BOOT
    """Until then ages are not believed, since the clock was set forward."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time of a step on both clocks."""

    mono: Mono
    wall: Wall

    def mono_in(self, seconds: float) -> Mono:
        """The monotonic time ``seconds`` from now."""
        return Mono(self.mono + seconds)

    def wall_in(self, seconds: float) -> Wall:
        """The wall-clock time ``seconds`` from now, if the clock is not set meanwhile."""
        return Wall(self.wall + seconds)

    def mono_due(self, deadline: Wall, *, at_most_s: float = math.inf) -> Mono:
        """When a wall-clock deadline is due on the monotonic clock: not before now, and within ``at_most_s``.

        The bound keeps a wall clock that was set back from postponing the deadline beyond what its policy allows.
        """
        return Mono(self.mono + min(max(deadline - self.wall, 0.0), at_most_s))

    def mono_of(self, moment: Wall) -> Mono:
        """A wall-clock moment, past or future, on the monotonic clock."""
        return Mono(self.mono - (self.wall - moment))

    def wall_of(self, moment: Mono) -> Wall:
        """A monotonic moment, past or future, on the wall clock."""
        return Wall(self.wall - (self.mono - moment))
