"""The part of a watch that outlives its process: which fields, on which clock, and when it is worth storing.

What a job has shown to be normal is learned once and changes rarely, so a steady job is hardly ever written. A kept
watch has its times relative to the moment of keeping, and goes on as if none had passed since: unwatched time is
neither silence nor survived, and no clock of the old process has to be trusted. A suspicion isn't kept. The next
evaluation finds it again, since agents went on watching, and orders new dumps.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast.hang.judge.stages import Rung
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.thresholds import Tuning

KEEP_EVERY_S = 10.0
"""No watch is written more often: what is learned of a job within seconds is learned again as fast."""
KEEP_SILENCE_S = 60.0
"""A silence that has grown by so much is worth it too: so much of a wait for the ceiling is lost at most."""

_TUNING = Tuning()


def resting(watch: JobWatch, now_s: float) -> JobWatch:
    """The part of the watch to keep: no suspicion and no phases, times relative to ``now_s``."""
    calm = replace(
        watch, rung=Rung.HEALTHY, suspicion=None, stood_since_s=None, still_since_s=None, lone_since_s=None
    )
    return _shifted(replace(calm, hold_until_s=None, phases={}), -now_s)


def woken(kept: JobWatch, now_s: float) -> JobWatch:
    """The watch that goes on at ``now_s`` where it was kept."""
    return _shifted(kept, now_s)


def worth_keeping(kept: JobWatch, kept_s: float, watch: JobWatch, now_s: float) -> bool:
    """Whether the watch should take the place of the one that was kept at ``kept_s``."""
    if now_s - kept_s < KEEP_EVERY_S:
        return False
    grown_s = watch.output.silent_s(now_s) - kept.output.silent_s(0.0)
    step_s = KEEP_EVERY_S if watch.rung is not Rung.HEALTHY else KEEP_SILENCE_S
    return _learned(watch) != _learned(kept) or grown_s >= step_s


def _learned(watch: JobWatch) -> tuple[object, ...]:
    """The fields that change rarely and that a restart would have to learn again, to compare two watches by."""
    rate = watch.output
    return (
        (bool(rate.events), rate.settled(_TUNING), watch.started_s is None, watch.first_work_s is None),
        (rate.longest_s, rate.opening_s, rate.second_s, rate.third_s, rate.steady_s),
        (watch.still_longest_s, watch.external_longest_s, watch.lone_longest_s, watch.dumps, watch.lesson),
    )


def _shifted(watch: JobWatch, by_s: float) -> JobWatch:
    return replace(
        watch,
        began_s=watch.began_s + by_s,
        seen_s=watch.seen_s + by_s,
        output=watch.output.shifted(by_s),
        moved_s=watch.moved_s + by_s,
        started_s=_moved(watch.started_s, by_s),
        first_work_s=_moved(watch.first_work_s, by_s),
        told_of_s=_moved(watch.told_of_s, by_s),
        dumped_s=_moved(watch.dumped_s, by_s),
    )


def _moved(at_s: float | None, by_s: float) -> float | None:
    return None if at_s is None else at_s + by_s
