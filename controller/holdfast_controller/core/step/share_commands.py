"""Commands about fair share; see ``commands``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShareAsked:
    """An admin sets a project's weight; None clears it."""

    token: int
    by: str
    project: str
    weight: float | None


@dataclass(frozen=True)
class GuaranteeAsked:
    """An admin guarantees a project so many GPUs; 0 takes the guarantee away."""

    token: int
    by: str
    project: str
    gpus: int


ShareCommand = ShareAsked | GuaranteeAsked
