"""Which versions of the controller and the agents work together: those whose protocols are one step apart at most.

``PROTOCOL`` is raised by a release after which an older peer would be misunderstood if it were not waited for: a
message that must be understood, a field that means something else. What only adds fields leaves it alone. So a
cluster is upgraded part by part, the controller first, and no release may be left out that has raised it.
"""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast.errors import WrongVersion

PROTOCOL = 2
"""That this version speaks. 1: hellos without a number. 2: hellos and welcomes say version and protocol."""
UNSAID = 1
"""The protocol of a peer that doesn't send a number."""
STEP = 1
"""How far apart two protocols may be."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One side of a session: its version, and its protocol as it said it (0: it didn't)."""

    version: str
    protocol: int

    @property
    def speaks(self) -> int:
        """The peer's protocol, ``UNSAID`` where it sent none."""
        return self.protocol or UNSAID

    def __str__(self) -> str:
        return f"{self.version or 'of an unknown version'} (protocol {self.speaks})"


def agree(one: int, other: int) -> bool:
    """Whether speakers of these two protocols understand each other."""
    return abs(one - other) <= STEP


def mismatch(controller: Speaker, agent: Speaker, host: str) -> WrongVersion | None:
    """Why the agent of ``host`` and the controller can't work together, and what to do; None where they can."""
    if agree(controller.speaks, agent.speaks):
        return None
    behind = agent.speaks < controller.speaks
    what = f"Upgrade the agent of {host}" if behind else "Upgrade the controller first"
    return WrongVersion(
        f"The agent of {host} is {agent}, the controller is {controller}: they are too far apart. "
        f"{what}; what runs there runs on."
    )
