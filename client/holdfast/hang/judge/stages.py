"""The ladder from healthy to acted: where a job stands with regard to a hang. One table."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Rung(enum.Enum):
    """Rungs of one generation; a new generation begins at the bottom."""

    HEALTHY = "healthy"
    # Something is odd and stack dumps will decide; the user is not notified yet.
    SUSPECT = "suspect"
    # The user is notified; evidence is being collected.
    NOTICED = "noticed"
    # The evidence is in, or its time is over, and nothing has moved.
    CONFIRMED = "confirmed"
    # It would be acted on, but for a reason that is named: the setting, a hold, a checkpoint writer, a common
    # cause.
    SUPPRESSED = "suppressed"
    # The order to kill and relaunch has been given.
    ACTED = "acted"
    # The place could not be proven empty afterwards.
    STUCK = "stuck"


TRANSITIONS: Mapping[Rung, frozenset[Rung]] = {
    Rung.HEALTHY: frozenset({Rung.SUSPECT, Rung.NOTICED}),
    Rung.SUSPECT: frozenset({Rung.HEALTHY, Rung.NOTICED}),
    Rung.NOTICED: frozenset({Rung.HEALTHY, Rung.CONFIRMED}),
    Rung.CONFIRMED: frozenset({Rung.HEALTHY, Rung.SUPPRESSED, Rung.ACTED}),
    # Back to NOTICED when another finding takes the place of the suppressed one, and its own time has not come.
    Rung.SUPPRESSED: frozenset({Rung.HEALTHY, Rung.NOTICED, Rung.ACTED}),
    Rung.ACTED: frozenset({Rung.STUCK}),
    Rung.STUCK: frozenset(),
}


def climb(rung: Rung, to: Rung) -> Rung:
    """The next rung. Raises ValueError for a way the table doesn't have."""
    if to is not rung and to not in TRANSITIONS[rung]:
        raise ValueError(f"no way from {rung.name} to {to.name}")
    return to
