"""Hosts that a job may not start on for a time that is known: they are in maintenance, or drained or reserved too soon.

A host that is drained at five is no host for a job of two hours from three o'clock on, and one again when its
maintenance is over. Projections have it come back then.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

from holdfast._base.dataclass import dataclass


class Cause(enum.Enum):
    """Why a job may not start on a host."""

    MAINTENANCE = "maintenance"
    RESERVATION = "reservation"


@dataclass(frozen=True, slots=True)
class Absence:
    """A time, ``after`` and ``before`` which a job may start on a host, but not within. Wall clock."""

    after: float
    before: float
    cause: Cause

    def covers(self, at: float) -> bool:
        """Whether the job may not start then."""
        return self.after < at < self.before


Absences = Mapping[str, Sequence[Absence]]
"""By host, of those that have any; for one job."""


def is_absent(absences: Iterable[Absence], at: float) -> bool:
    """Whether one of them covers that time."""
    return any(each.covers(at) for each in absences)


def first_open(absences: Iterable[Absence], since: float) -> float:
    """The first time from ``since`` on that none of them covers; infinite for never."""
    at = since
    for each in sorted(absences, key=lambda each: each.after):
        if each.covers(at):
            at = each.before
    return at
