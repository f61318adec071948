"""Events of GPUs that a job doesn't use."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import UnderuseAction
from holdfast_controller.core.model.clock import Wall


@dataclass(frozen=True, kw_only=True)
class UnderuseNoticed:
    """GPUs of the job have been unused for as long as its policy says, or more or fewer of them than before."""

    job_id: str
    at: Wall
    generation: int
    idle: int
    gpus: int
    since: Wall
    """When the first of them was used last."""
    unknown: int = 0
    """GPUs that can't be read."""
    action: UnderuseAction | None = None
    """What follows; None where nothing does."""
    before_s: float = 0.0
    """GPU seconds for which those that are new here were unused before."""


@dataclass(frozen=True, kw_only=True)
class UnderuseOver:
    """No GPU of the job is known to be unused any more."""

    job_id: str
    at: Wall
    generation: int
