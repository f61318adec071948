"""Inputs of the reactor about faults that are injected on purpose."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.injection import Fault


@dataclass(frozen=True)
class InjectionAsked:
    """A user wants a fault put into a rank of a generation for so many seconds; ``speed``: percent, of a slowed one."""

    token: int
    by: str
    job_id: str
    generation: int
    rank: int
    fault: Fault
    for_s: float
    speed: int


@dataclass(frozen=True)
class InjectionFailed:
    """A rank's host could not inject what was asked for, and says why."""

    token: int
    job_id: str
    generation: int
    rank: int
    why: str
