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
