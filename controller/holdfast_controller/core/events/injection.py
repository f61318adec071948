"""Events of faults that were injected on purpose."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.injection import Fault


@dataclass(frozen=True, kw_only=True)
class FaultInjected:
    """A user puts a fault into a rank, until then. ``speed``: percent of the time in which a slowed one runs."""

    job_id: str
    at: Wall
    by: str
    generation: int
    worker: str
    rank: int
    fault: Fault
    until: Wall
    speed: int = 0


@dataclass(frozen=True, kw_only=True)
class FaultNotInjected:
    """The rank's host could not do that."""

    job_id: str
    at: Wall
    generation: int
    worker: str
    rank: int
    why: str
