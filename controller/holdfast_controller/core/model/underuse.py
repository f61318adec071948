"""GPUs that a job holds and doesn't use: what is to be done about them, and what is known of them."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import UnderuseAction, UnderuseShare
from holdfast_controller.core.model.clock import NEVER, Wall


@dataclass(frozen=True)
class UnderusePolicy:
    """The answer to GPUs of a job that stay below ``below_pct`` percent of utilization for ``duration_s``."""

    action: UnderuseAction = UnderuseAction.NOTIFY
    below_pct: int = 5
    duration_s: float = 7200.0
    of: UnderuseShare = UnderuseShare.ANY


BY = "its underuse policy"
"""Who pauses or cancels a job that doesn't use its GPUs, in the place of a user."""


@dataclass(frozen=True)
class Underuse:
    """``idle`` of a job's ``gpus`` were unused for the policy's time, the first of them since ``since``."""

    idle: int
    gpus: int
    since: Wall
    unknown: int = 0
    """GPUs that can't be read. They count as used."""
    acted: bool = False
    """The policy's action was taken. It is taken once until all are used again."""
    counted_at: Wall = NEVER
    """Their time is added up until then."""

    @property
    def in_words(self) -> str:
        """Such as "uses 3 of 8 GPUs"; less is said where some can't be read."""
        if self.unknown:
            return f"does not use {self.idle} of {self.gpus} GPUs"
        if self.idle < self.gpus:
            return f"uses {self.gpus - self.idle} of {self.gpus} GPUs"
        return "does not use its GPU" if self.gpus == 1 else f"uses none of its {self.gpus} GPUs"
