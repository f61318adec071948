"""The signs that set a rank of a slow job apart from the others.

Theory of operation. A gang in step shares one pace, so the time of a step names no one. But the slow rank waits less
than the others, who wait for it; and if its place is to blame, something there takes its time: no core, stops, a
lower clock. The first alone is what more work looks like, too. Each sign is compared with what is usual for this rank
in this job and with the other ranks now, has to stand out from their spread, and has to explain the slowness.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from holdfast_controller.core.model.slowness import RankSlot, Sign
from holdfast_controller.core.slowness.pace import NORMAL, in_step
from holdfast_controller.core.slowness.thresholds import Tuning

Ranks = Mapping[int, RankSlot]
Change = Callable[[RankSlot, RankSlot], float | None]
"""Of a rank: from what is usual, and what is now."""


def signs_of(
    now: Ranks, usual: Ranks, lost: float, findings: frozenset[str], tuning: Tuning
) -> dict[int, set[Sign]]:
    """By rank: its signs. ``lost`` is the share of the time that the slowness costs."""
    found: dict[int, set[Sign]] = {}
    ranks = {rank: slot for rank, slot in now.items() if rank in usual}
    if len(ranks) < 2:
        return found
    need = tuning.explains * lost
    together = in_step(ranks, tuning)
    tests: list[tuple[Sign, Change, float, float]] = [
        (Sign.NO_CORE, _grown("no_core"), need, tuning.share_floor),
        (Sign.STOPPED, _grown("stopped"), need, tuning.share_floor),
        (Sign.CLOCK, _slower_clock, max(need, tuning.clock_least), tuning.ratio_floor),
    ]
    if together:
        tests.append((Sign.WAITED_FOR, _waits_less, need, tuning.share_floor))
    for sign, change, least, floor in tests:
        for rank in _outstanding(ranks, usual, change, least, floor, tuning):
            found.setdefault(rank, set()).add(sign)
    for rank in [rank for rank, signs in found.items() if Sign.WAITED_FOR in signs]:
        if not _others_wait_more(rank, ranks, usual, need):
            found[rank].discard(Sign.WAITED_FOR)
    for rank in [rank for rank, signs in found.items() if Sign.CLOCK in signs]:
        if not _as_busy(rank, ranks, tuning):
            found[rank].discard(Sign.CLOCK)
    for rank in _outstanding(ranks, usual, _power_apart, need / 2, tuning.share_floor, tuning):
        found.setdefault(rank, set()).add(Sign.POWER)
    if not together:
        _note_own_steps(found, ranks, usual, tuning)
    for rank, signs in found.items():
        if signs and ranks[rank].host in findings and len({slot.host for slot in ranks.values()} - findings) > 0:
            signs.add(Sign.FINDING)
    return {rank: signs for rank, signs in found.items() if signs}


# --- What changed ---------------------------------------------------------------------------------------------------


def _grown(name: str) -> Change:
    def change(before: RankSlot, now: RankSlot) -> float | None:
        was, is_ = getattr(before, name), getattr(now, name)
        return is_ - was if was is not None and is_ is not None else None

    return change


def _waits_less(_before: RankSlot, now: RankSlot) -> float | None:
    return -now.waits if now.waits is not None else None


def _slower_clock(before: RankSlot, now: RankSlot) -> float | None:
    return 1 - now.clock_mhz / before.clock_mhz if before.clock_mhz and now.clock_mhz is not None else None


def _power_apart(before: RankSlot, now: RankSlot) -> float | None:
    return now.power_w / before.power_w - 1 if before.power_w and now.power_w is not None else None


# --- Standing out ---------------------------------------------------------------------------------------------------


def _outstanding(
    ranks: Ranks, usual: Ranks, change: Change, least: float, floor: float, tuning: Tuning
) -> list[int]:
    """Ranks whose change is above the others' by ``least``, and by four of their deviations.

    The others are those on other hosts, where there are any: what a host does to one rank it may do to all of it.
    """
    changes = {rank: value for rank, slot in ranks.items() if (value := change(usual[rank], slot)) is not None}
    two_sided = change is _power_apart
    found = []
    by_host: dict[str, tuple[float, float] | None] = {}
    several = len({ranks[rank].host for rank in changes}) > 1
    for rank, value in changes.items():
        host = ranks[rank].host
        if several:
            if host not in by_host:
                by_host[host] = _middle([each for other, each in changes.items() if ranks[other].host != host])
            others = by_host[host]
        else:
            others = _middle([each for other, each in changes.items() if other != rank])
        if others is None:
            continue
        middle, deviation = others
        apart = abs(value - middle) if two_sided else value - middle
        if apart >= least and apart >= tuning.deviations * max(deviation, floor / tuning.deviations, 1e-9):
            found.append(rank)
    return found


def _middle(values: list[float]) -> tuple[float, float] | None:
    if not values:
        return None
    middle = median(values)
    return middle, NORMAL * median(abs(value - middle) for value in values)


def _others_wait_more(rank: int, ranks: Ranks, usual: Ranks, need: float) -> bool:
    """Whether the others wait more than is usual, and this rank does not."""
    host, several = ranks[rank].host, len({slot.host for slot in ranks.values()}) > 1
    change = _grown("waits")
    others = [
        value
        for other, slot in ranks.items()
        if (slot.host != host if several else other != rank) and (value := change(usual[other], slot)) is not None
    ]
    own = change(usual[rank], ranks[rank])
    return bool(others) and own is not None and median(others) >= need and own < need / 2


def _as_busy(rank: int, ranks: Ranks, tuning: Tuning) -> bool:
    own = ranks[rank].util_pct
    others = [slot.util_pct for other, slot in ranks.items() if other != rank and slot.util_pct is not None]
    return own is not None and bool(others) and own >= median(others) - tuning.util_margin_pct


# --- Ranks that don't keep in step ----------------------------------------------------------------------------------


def _note_own_steps(found: dict[int, set[Sign]], ranks: Ranks, usual: Ranks, tuning: Tuning) -> None:
    """Ranks that are slower than they were, while the others go on as before."""
    ratios = {
        rank: slot.step_ms / before
        for rank, slot in ranks.items()
        if slot.step_ms is not None and (before := usual[rank].step_ms)
    }
    slow = {rank for rank, ratio in ratios.items() if ratio >= 1 + tuning.slower}
    others = [ratio for rank, ratio in ratios.items() if rank not in slow]
    if len(others) < len(slow) or not others or median(others) > 1 + tuning.others_as_before:
        return
    hosts = {ranks[rank].host for rank in slow}
    for rank in slow:
        found.setdefault(rank, set()).add(Sign.OWN_STEPS)
        on_host = [other for other in ratios if ranks[other].host == ranks[rank].host]
        if len(hosts) == 1 and len(on_host) > 1 and slow.issuperset(on_host):
            found[rank].add(Sign.NEIGHBOUR)
