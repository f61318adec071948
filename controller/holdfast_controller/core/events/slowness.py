"""Events of a job that is slower than it was."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.slowness import Suspect


@dataclass(frozen=True, kw_only=True)
class SlowdownNoticed:
    """The job takes longer for a step than at its best, or more is known of whom that comes from."""

    job_id: str
    at: Wall
    generation: int
    since: Wall
    best_ms: float
    recent_ms: float
    """Time of a step then and now."""
    named: tuple[Suspect, ...] = ()
    """Ranks of one host that two independent signs agree on."""
    waited_for: int | None = None
    """A rank that the others wait for, while nothing of its place holds it back."""


@dataclass(frozen=True, kw_only=True)
class SlowdownOver:
    """The job is as fast as at its best again."""

    job_id: str
    at: Wall
    generation: int
