"""Whether: the pace of a job in slots, and whether it is slow against its own best.

Theory of operation. A slot ends with the first step after half a minute, so that it holds whole steps. The median of
ten good slots is a pace that the job has shown it can keep; the lowest of those is its best. A job whose sequences grow
gets slower, and is called that: it is true, and no rank stands out in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from statistics import fmean, median

from holdfast._base.dataclass import dataclass
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast_controller.core.model.goodput import LONGEST_MS, SHORTEST_MS
from holdfast_controller.core.model.slowness import Mark, RankSlot, Slot, SlowWatch
from holdfast_controller.core.slowness.thresholds import Tuning

LESS = 2
"""Steps that fall to less than this part are others; by less falls a program that goes on from a save."""
NORMAL = 1.4826
"""Median deviations in a standard deviation."""


@dataclass(frozen=True, slots=True)
class Look:
    """A job at one time: ``step`` was reached at ``at_s``, on our monotonic clock, as all times in it.

    ``apart``: it evaluates, saves, is held or declares a pause. ``findings``: hosts with a grave finding about their
    hardware.
    """

    at_s: float
    step: float | None
    apart: bool
    times: dict[int, tuple[str, float, RankTimes]]
    findings: frozenset[str] = frozenset()


def note_look(watch: SlowWatch, look: Look, generation: int, tuning: Tuning) -> Slot | None:
    """Take a look in; the slot that it ends, if it does."""
    if watch.generation != generation:
        # What is usual outlives a generation: the same ranks of the same program, maybe on another host.
        watch.generation, watch.mark, watch.apart = generation, None, False
        watch.slots.clear()
        watch.seen.clear()
        watch.slow_since_s = watch.lonely = None
    if look.step is None:
        return None
    mark = watch.mark
    if mark is not None and LESS * look.step < mark.step:
        # Something else is counted from now on, such as epochs: a new pace is to be learned.
        watch.best_ms, watch.spread, watch.usual, watch.slots = 0.0, 0.0, {}, []
        watch.seen.clear()
        watch.slow_since_s = watch.lonely = None
    if mark is None or look.step < mark.step or look.at_s < mark.at_s:
        watch.mark, watch.apart = Mark(look.at_s, look.step, look.times), look.apart
        return None
    watch.apart |= look.apart
    if look.step <= mark.step or look.at_s - mark.at_s < tuning.slot_s:
        return None
    ranks = _ranks(mark, look)
    own = [rank.step_ms for rank in ranks.values() if rank.step_ms is not None]
    step_ms = 1000 * (look.at_s - mark.at_s) / (look.step - mark.step)
    if len(own) == len(look.times) and not in_step(ranks, tuning):
        # Ranks that don't wait for each other: the highest step says nothing of a slow one.
        ratios = [
            rank.step_ms / usual for n, rank in ranks.items() if rank.step_ms and (usual := _usual_ms(watch, n))
        ]
        # Some may have ended: those that are left are compared with themselves.
        step_ms = watch.best_ms * fmean(ratios) if len(ratios) == len(own) else fmean(own)
    slot = Slot(mark.at_s, look.at_s, step_ms, ranks)
    ignored = watch.apart or slot.end_s - slot.start_s > tuning.pause_s or not _can_be(step_ms)
    watch.mark, watch.apart = Mark(look.at_s, look.step, look.times), look.apart
    if ignored:
        return None
    watch.slots.append(slot)
    del watch.slots[: -(tuning.reference + tuning.recent)]
    return slot


def _usual_ms(watch: SlowWatch, rank: int) -> float | None:
    usual = watch.usual.get(rank)
    return usual.step_ms if usual is not None else None


def in_step(ranks: Mapping[int, RankSlot], tuning: Tuning) -> bool:
    """Whether all ranks take as long for a step, as far as they say."""
    steps = [slot.step_ms for slot in ranks.values() if slot.step_ms is not None]
    return len(steps) < len(ranks) or len(steps) < 2 or max(steps) <= min(steps) * (1 + tuning.apart_steps)


def recent_ms(watch: SlowWatch, tuning: Tuning) -> float | None:
    """The pace of now; None before there is one."""
    if len(watch.slots) < tuning.recent:
        return None
    return median(slot.step_ms for slot in watch.slots[-tuning.recent :])


def learn_best(watch: SlowWatch, tuning: Tuning) -> None:
    """Take the newest slots as the best, if they are."""
    slots = watch.slots[-tuning.reference :]
    if len(slots) < tuning.reference:
        return
    middle = median(slot.step_ms for slot in slots)
    if watch.best_ms and middle >= watch.best_ms:
        return
    watch.best_ms = middle
    deviation = NORMAL * median(abs(slot.step_ms - middle) for slot in slots) / middle
    watch.spread = deviation if not watch.usual else max(deviation, watch.spread / 2)
    watch.usual = averages(slots)


def slower_by(watch: SlowWatch, now_ms: float) -> float:
    """By how much a step takes longer than at the job's best, relative to that; 0 before there is one."""
    return now_ms / watch.best_ms - 1 if watch.best_ms else 0.0


def bound(watch: SlowWatch, least: float, tuning: Tuning) -> float:
    """By so much a pace is slower than it is now and then anyway, and by ``least``."""
    return max(least, tuning.spreads * watch.spread)


def averages(slots: list[Slot]) -> dict[int, RankSlot]:
    """Means of each rank that is in all of the slots on one host."""
    found: dict[int, RankSlot] = {}
    for rank, last in slots[-1].ranks.items():
        of_rank = [slot.ranks[rank] for slot in slots if rank in slot.ranks]
        if len(of_rank) == len(slots) and all(each.host == last.host for each in of_rank):
            found[rank] = _mean(of_rank)
    return found


def _mean(slots: list[RankSlot]) -> RankSlot:
    means = [_mean_of(values) for values in zip(*map(_NUMBERS, slots), strict=True)]
    waits, no_core, stopped, clock_mhz, util_pct, power_w, step_ms, aside, storage = means
    return RankSlot(
        slots[-1].host, waits, no_core, stopped, aside or 0.0, storage or 0.0, clock_mhz, util_pct, power_w, step_ms
    )


def _mean_of(values: tuple[float | None, ...]) -> float | None:
    """The mean of those that are known, if most are."""
    if None not in values:
        return sum(values) / len(values)  # type: ignore[arg-type]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) * 2 > len(values) else None


_NUMBERS = attrgetter(
    *("waits", "no_core", "stopped", "clock_mhz", "util_pct", "power_w", "step_ms"), *("aside", "storage")
)


def _ranks(mark: Mark, look: Look) -> dict[int, RankSlot]:
    """Shares of each rank's time between two looks; only of those that both had."""
    found: dict[int, RankSlot] = {}
    for rank, (host, at_s, now) in look.times.items():
        before = mark.times.get(rank)
        if before is not None and before[0] == host and at_s > before[1]:
            slot = _slot(host, before[2], now)
            if slot is not None:
                found[rank] = slot
    return found


def _slot(host: str, before: RankTimes, now: RankTimes) -> RankSlot | None:
    seen_s, looks = now.seen_s - before.seen_s, now.looks - before.looks
    if seen_s <= 0 or looks <= 0 or now.gpu_looks < before.gpu_looks:
        return None  # An agent that has begun again.
    stopped = max(0.0, (now.stopped - before.stopped) / looks)
    aside = max(0.0, (now.aside - before.aside) / looks)
    storage = max(0.0, (now.storage - before.storage) / looks)
    ran = _share(before.ran_s, now.ran_s, seen_s)
    no_core = _share(before.queued_s, now.queued_s, seen_s)
    waits = None
    if ran is not None and no_core is not None:
        # What is neither work, nor held back, nor its own sleep, is a wait for others.
        waits = max(0.0, 1.0 - ran - no_core - stopped - aside - storage)
    readings, gpu_s = now.gpu_looks - before.gpu_looks, now.gpu_s - before.gpu_s
    return RankSlot(
        host=host,
        waits=waits,
        no_core=no_core,
        stopped=stopped,
        aside=aside,
        storage=storage,
        clock_mhz=_reading(now.clock_mhz - before.clock_mhz, readings),
        util_pct=_reading(now.util_pct - before.util_pct, readings),
        power_w=_reading(now.energy_j - before.energy_j, gpu_s),
        step_ms=_step_ms(before, now),
    )


def _reading(total: float, over: float) -> float | None:
    """A mean clock, power or utilization; None where no GPU has it."""
    mean = total / over if over > 0 else -1.0
    return mean if mean == 0 or _LEAST <= mean <= _MOST else None


_LEAST, _MOST = 1e-6, 1e9


def _share(before: float | None, now: float | None, seen_s: float) -> float | None:
    return min(1.0, (now - before) / seen_s) if before is not None and now is not None and now >= before else None


def _step_ms(before: RankTimes, now: RankTimes) -> float | None:
    if before.step is None or now.step is None or before.step_s is None or now.step_s is None:
        return None
    if now.step <= before.step or now.step_s <= before.step_s:
        return None
    found = 1000 * (now.step_s - before.step_s) / (now.step - before.step)
    return found if _can_be(found) else None


def _can_be(step_ms: float) -> bool:
    return SHORTEST_MS <= step_ms <= LONGEST_MS
