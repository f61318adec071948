"""The deadline by which a generation ends by itself, because the controller may have given its host up.

Only for jobs that have asked for it. Times are seconds since boot, suspended time included: a machine that has
slept past the deadline stops its work as soon as it wakes. The agent renews the deadline whenever the controller
has answered; whether the agent is dead, stuck or cut off makes no difference to what follows when it doesn't.
"""

from __future__ import annotations

from holdfast_agent.shim.processes import now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRACE_SHARE = 12  # of the term, from TERM to KILL; with the default of 60 s all is over 10 s before it matters
LOOK_EVERY_S = 1.0  # the poll's clock stands still during a suspend


class Fence:
    """A term and a deadline that is never further off than the term."""

    def __init__(self, term_s: float, deadline: float) -> None:
        self.term_s = term_s
        self.deadline = 0.0
        self.renew(deadline)

    def renew(self, deadline: float) -> None:
        """Moves the deadline on, never back."""
        self.deadline = max(self.deadline, min(deadline, now_s() + self.term_s))

    @property
    def grace_s(self) -> float:
        """Seconds between TERM and KILL."""
        return self.term_s / GRACE_SHARE

    @property
    def words(self) -> str:
        """Why it all ends."""
        return f"stopped by itself: no word from the controller for {self.term_s:g} s"


def ordered(message: dict[str, Any]) -> Fence | None:
    """The fence of a launch order; None where it has none. Raises ValueError for one that is over, or TypeError."""
    term_s = float(message.get("fence_s", 0))
    if not 0 < term_s < 1e9:
        return None
    fence = Fence(term_s, float(message["fence_deadline"]))
    if fence.deadline <= now_s():
        raise ValueError(f"the controller has not been heard for {term_s:g} s")
    return fence
