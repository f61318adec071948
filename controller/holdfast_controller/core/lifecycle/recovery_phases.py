"""Phases of a recovery in seconds; None for one that is not over, or can't be known."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.budgets import Recovery


@dataclass(frozen=True, slots=True)
class Phases:
    """From the failure on, one after the other; ``lost_s`` is all of it until the ranks ran again."""

    detect_s: float
    diagnose_s: float
    stop_s: float | None = None
    start_s: float | None = None
    catch_up_s: float | None = None
    lost_s: float | None = None


def phases_of(recovery: Recovery) -> Phases:
    """The durations of a recovery's phases so far; never negative, even if the wall clock was set back."""
    failed = min(recovery.failed_at, recovery.started_at)
    detect_s = recovery.detect_s if recovery.detect_s is not None else recovery.started_at - failed
    stop_s = start_s = catch_up_s = lost_s = None
    if recovery.stopped_at is not None:
        stop_s = max(recovery.stopped_at - recovery.started_at, 0.0)
    if recovery.ended_at is not None:
        start_s = max(recovery.ended_at - (recovery.stopped_at or recovery.started_at), 0.0)
        lost_s = max(recovery.ended_at - failed, 0.0)
        if recovery.caught_up_at is not None:
            catch_up_s = max(recovery.caught_up_at - recovery.ended_at, 0.0)
    return Phases(max(detect_s, 0.0), max(recovery.diagnose_s, 0.0), stop_s, start_s, catch_up_s, lost_s)
