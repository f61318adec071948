"""Faults that a user has put into ranks on purpose. Values are stored and sent: never change one."""

from __future__ import annotations

import enum

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall

AFTERMATH_S = 900.0
"""A failure so long after an injected fault may be its consequence: torch gives up on NCCL after 10 min."""


class Fault(enum.Enum):
    """The kind of an injected fault."""

    KILL = "KILL"
    STOP = "STOP"
    SLOW = "SLOW"
    DISK = "DISK"
    NET = "NET"
    HANG = "HANG"


@dataclass(frozen=True)
class Injection:
    """One fault that was put into a rank of a generation, undone at ``until``."""

    generation: int
    rank: int
    until: Wall
