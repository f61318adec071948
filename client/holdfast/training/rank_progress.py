"""A rank's own word of how far it is, as its file has it and as samples of its worker do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankProgress:
    """Progress that a rank's training loop reported by ``holdfast.progress``; ``at_s`` is the newest report's time.

    As the rank wrote it, that is CLOCK_BOOTTIME; in a sample it is the sender's clock, as all times there.
    """

    rank: int
    reports: int = 0
    # None before the first.
    step: int | None = None
    at_s: float = 0.0
    # Why it is in a declared pause; None when it isn't.
    idle_reason: str | None = None
    # Of the training: its steps in all, those of the newest complete checkpoint and of the one it went on from.
    # None: not reported.
    total: int | None = None
    saved: int | None = None
    resumed: int | None = None
    # How often it has gone on from one.
    resumes: int = 0
    saves: bool = False
    evaluates: bool = False
