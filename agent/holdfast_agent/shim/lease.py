"""The deadline by which a generation ends by itself, because the controller may have given its host up.

Times are seconds since boot, suspended time included: a machine that has slept past the deadline stops its work as
soon as it wakes. The agent renews the deadline whenever the controller has answered; whether the agent is dead, stuck
or cut off makes no difference to what follows when it doesn't. Where the job asks for no more than that its gang is
whole, the deadline moves on as well while all peers answer (`peers.py`).
"""

from __future__ import annotations

from holdfast_agent.shim.peers import Peers
from holdfast_agent.shim.processes import now_s

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRACE_SHARE = 12  # of the term, from TERM to KILL
LOOK_EVERY_S = 1.0  # the poll's clock stands still during a suspend


class Fence:
    """A term and a deadline that is never further off than the term, unless peers answer."""

    def __init__(self, term_s: float, deadline: float) -> None:
        self.term_s = term_s
        self.peers: Peers | None = None
        self._renewed = 0.0
        self.renew(deadline)

    def renew(self, deadline: float) -> None:
        """Moves the deadline on, never back."""
        self._renewed = max(self._renewed, min(deadline, now_s() + self.term_s))

    @property
    def deadline(self) -> float:
        """When it ends: with peers, once both they and the controller have been silent for the term."""
        return max(self._renewed, self.peers.book.deadline) if self.peers else self._renewed

    @property
    def grace_s(self) -> float:
        """Seconds between TERM and KILL."""
        return self.term_s / GRACE_SHARE

    @property
    def words(self) -> str:
        """Why it all ends."""
        words = f"stopped by itself: no word from the controller for {self.term_s:.3g} s"
        return f"{words}, nor from another worker of the job" if self.peers else words


def ordered(message: dict[str, Any]) -> Fence | None:
    """The fence of a launch order; None where it has none. Raises ValueError for one that is over, or TypeError."""
    peers = message.get("peers")
    order = peers or message
    term_s = float(order.get("fence_s", 0))
    if not 0 < term_s < 1e9:
        return None
    fence = Fence(term_s, float(order["fence_deadline"]))
    if fence.deadline <= now_s() and not peers:
        raise ValueError(f"the controller has not been heard for {term_s:.3g} s")
    return fence


def with_peers(fence: Fence, order: dict[str, Any], generation: int, lacks: list[str]) -> Fence | None:
    """The fence that peers move on too; None, and the reason in `lacks`, where they can't be asked."""
    try:
        fence.peers = Peers(order, generation, fence.term_s)
    except (OSError, KeyError, TypeError, ValueError) as error:
        lacks.append(f"no lease with the job's other workers: {error}")
        return None
    return fence
