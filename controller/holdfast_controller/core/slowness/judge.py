"""One look at a job: first whether it is slow against its own best, then who it comes from.

A rank is named when signs of two kinds agree on it at three of five looks, one of them of its place, and when no rank
of another host is in the same case: a cause that several hosts have is none of a rank. Silence is better than a false
name, so whatever is missing is no sign. A job that is a little slower only is called slow if a rank is named for it.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.slowness import Sign, SlowWatch, Suspect, agree
from holdfast_controller.core.slowness.pace import (
    Look,
    averages,
    bound,
    learn_best,
    note_look,
    recent_ms,
    slower_by,
)
from holdfast_controller.core.slowness.signs import signs_of
from holdfast_controller.core.slowness.thresholds import TUNING, Tuning


@dataclass(frozen=True, slots=True)
class Slow:
    """A job that is slow: since when, and who it comes from. Seconds on our monotonic clock."""

    since_s: float
    best_ms: float
    recent_ms: float
    named: tuple[Suspect, ...] = ()
    waited_for: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """``news``: a slot ended, and the job was judged again. ``slow`` is None where it isn't slow."""

    news: bool
    slow: Slow | None = None


def judge(watch: SlowWatch, look: Look, generation: int, tuning: Tuning = TUNING) -> Judged:
    """Take a look into the watch and judge the job, if a slot has ended by it."""
    if note_look(watch, look, generation, tuning) is None:
        return Judged(news=False)
    now_ms = recent_ms(watch, tuning)
    if now_ms is None:
        return Judged(news=False)
    slower, called = slower_by(watch, now_ms), watch.slow_since_s is not None
    noticed, slow = bound(watch, tuning.noticed, tuning), bound(watch, tuning.slower, tuning)
    slow_from = watch.slow_from if called else slow if slower >= slow else noticed
    if slower < (slow_from / 2 if called else noticed):
        watch.slow_since_s, watch.lonely = None, None
        watch.seen.clear()
        learn_best(watch, tuning)
        return Judged(news=True)
    since_s = watch.slow_since_s if watch.slow_since_s is not None else _since(watch, slow_from)
    found = _who(watch, look, now_ms, since_s, tuning)
    if not called and slower < slow and not found.named:
        # Not slow enough to be said of a job, unless it is known who it comes from.
        learn_best(watch, tuning)
        return Judged(news=True)
    watch.slow_since_s, watch.slow_from = since_s, slow_from
    return Judged(news=True, slow=found)


def _since(watch: SlowWatch, slow_from: float) -> float:
    """Start of the slow slots at the end."""
    least_ms, since_s = watch.best_ms * (1 + slow_from / 2), watch.slots[-1].start_s
    for slot in reversed(watch.slots):
        if slot.step_ms < least_ms:
            break
        since_s = slot.start_s
    return since_s


def _who(watch: SlowWatch, look: Look, now_ms: float, since_s: float, tuning: Tuning) -> Slow:
    window = watch.slots[-tuning.window :]
    pace = median(slot.step_ms for slot in window)
    lost = 1 - watch.best_ms / pace if pace > watch.best_ms else 0.0
    slow = lost > 0 and all(slot.step_ms > watch.best_ms for slot in window)
    now = averages(window) if slow else {}
    found = signs_of(now, watch.usual, lost, look.findings, tuning) if slow else {}
    _note_seen(watch, found, tuning)
    _note_lonely(watch, found)
    named = [
        Suspect(rank, now[rank].host, tuple(sorted(signs, key=list(Sign).index)))
        for rank, signs in _confirmed(watch, tuning).items()
        if rank in watch.seen[-1]
    ]
    several = len({now[rank].host for rank in watch.seen[-1]}) > 1
    lonely = watch.lonely[0] if watch.lonely is not None and watch.lonely[1] >= tuning.looks else None
    return Slow(
        since_s=since_s,
        best_ms=watch.best_ms,
        recent_ms=now_ms,
        named=() if several else tuple(named),
        waited_for=None if named else lonely,
    )


def _note_seen(watch: SlowWatch, found: dict[int, set[Sign]], tuning: Tuning) -> None:
    agreeing = {rank: frozenset(signs) for rank, signs in found.items() if agree(frozenset(signs))}
    watch.seen = [*watch.seen, agreeing][-tuning.of_looks :]


def _confirmed(watch: SlowWatch, tuning: Tuning) -> dict[int, frozenset[Sign]]:
    """By rank: signs that agree, each seen often enough."""
    counts = Counter((rank, sign) for look in watch.seen for rank, signs in look.items() for sign in signs)
    often: dict[int, set[Sign]] = {}
    for (rank, sign), looks in counts.items():
        if looks >= tuning.looks:
            often.setdefault(rank, set()).add(sign)
    return {rank: frozenset(signs) for rank, signs in sorted(often.items()) if agree(frozenset(signs))}


def _note_lonely(watch: SlowWatch, found: dict[int, set[Sign]]) -> None:
    waited = [rank for rank, signs in found.items() if Sign.WAITED_FOR in signs]
    if len(waited) != 1 or found[waited[0]] != {Sign.WAITED_FOR}:
        watch.lonely = None
        return
    looks = watch.lonely[1] if watch.lonely is not None and watch.lonely[0] == waited[0] else 0
    watch.lonely = waited[0], looks + 1
