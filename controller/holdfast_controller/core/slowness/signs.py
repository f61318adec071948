"""The signs that set a rank of a slow job apart from the others.

Theory of operation. A gang in step shares one pace, so the time of a step names no one. But the slow rank waits less
than the others, who wait for it; and if its place is to blame, something there takes its time: no core, stops, a
lower clock. The first alone is what more work looks like, too. Each sign is compared with what is usual for this rank
in this job and with the other ranks now, has to stand out from their spread, and has to explain the slowness.

What grew is counted in the time of a step. A rank that waits for its device for most of a step can't wait for much more
of it, however long the step gets, so that its share of the time would hide its wait for another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from statistics import median

from holdfast_controller.core.model.slowness import RankSlot, Sign
from holdfast_controller.core.slowness.others import Rest, Sorted
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
    need, kept = tuning.explains * lost, 1 - lost
    together = in_step(ranks, tuning)
    tests: list[tuple[Sign, Change, float, float]] = [
        (Sign.NO_CORE, _without_core(kept), need, tuning.share_floor),
        (Sign.STOPPED, _grown("stopped", kept), need, tuning.share_floor),
        (Sign.CLOCK, _slower_clock, max(need, tuning.clock_least), tuning.ratio_floor),
    ]
    if together:
        tests.append((Sign.WAITED_FOR, _waits_no_more(kept), need, tuning.share_floor))
    for sign, change, least, floor in tests:
        for rank in _outstanding(ranks, usual, change, least, floor, tuning):
            found.setdefault(rank, set()).add(sign)
    waited = {rank for rank, signs in found.items() if Sign.WAITED_FOR in signs}
    for rank in waited - _others_wait_more(waited, ranks, usual, need, kept):
        found[rank].discard(Sign.WAITED_FOR)
    clocked = {rank for rank, signs in found.items() if Sign.CLOCK in signs}
    for rank in clocked - _as_busy(clocked, ranks, tuning):
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


def _grown(name: str, kept: float) -> Change:
    """Time of a step that is spent so beyond what is usual, as a share of it. ``kept`` is what a step took, of it."""

    def change(before: RankSlot, now: RankSlot) -> float | None:
        was, is_ = getattr(before, name), getattr(now, name)
        return is_ - was * kept if was is not None and is_ is not None else None

    return change


def _without_core(kept: float) -> Change:
    """Growth beyond what comes with the work: on a busy host more of it is more often without a core."""

    def change(before: RankSlot, now: RankSlot) -> float | None:
        if before.no_core is None or now.no_core is None:
            return None
        was, is_ = _on_core(before), _on_core(now)
        return now.no_core - before.no_core * (max(kept, is_ / was) if was > 0 else kept)

    return change


def _on_core(slot: RankSlot) -> float:
    waits, no_core, stopped = slot.waits or 0.0, slot.no_core or 0.0, slot.stopped or 0.0
    return max(0.0, 1.0 - waits - no_core - stopped - slot.aside - slot.storage)


def _waits_no_more(kept: float) -> Change:
    """By how much less its wait has grown: ranks that always waited more or less than each other are alike in that."""
    grown = _grown("waits", kept)

    def change(before: RankSlot, now: RankSlot) -> float | None:
        more = grown(before, now)
        return -more if more is not None else None

    return change


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
    if not changes:
        return []
    groups = _groups(changes, ranks)
    of_group: dict[object, list[float]] = {}
    for rank, value in changes.items():
        of_group.setdefault(groups[rank], []).append(value)
    whole = Sorted(list(changes.values()))
    low, high = whole.middle_without(max(map(len, of_group.values())))
    others: dict[object, Rest] = {}
    found = []
    for rank, value in changes.items():
        if value - low < least and not (two_sided and high - value >= least):
            continue  # Most are, whichever the others are.
        group = groups[rank]
        if group not in others:
            others[group] = whole.without(of_group[group])
        rest = others[group]
        if not rest.count:
            continue
        apart = abs(value - rest.median) if two_sided else value - rest.median
        if apart < least:
            continue
        if apart >= tuning.deviations * max(NORMAL * rest.deviation, floor / tuning.deviations, 1e-9):
            found.append(rank)
    return found


def _groups(values: Collection[int], ranks: Ranks) -> dict[int, object]:
    """The group that each rank is compared without: its host, or itself alone where all are on one."""
    several = len({ranks[rank].host for rank in values}) > 1
    return {rank: ranks[rank].host if several else rank for rank in values}


def _others_wait_more(suspects: set[int], ranks: Ranks, usual: Ranks, need: float, kept: float) -> set[int]:
    """The suspects that don't wait more than is usual, while the others do, and now wait less than these."""
    change = _grown("waits", kept)
    grown = {rank: value for rank, slot in ranks.items() if (value := change(usual[rank], slot)) is not None}
    now = {rank: slot.waits for rank, slot in ranks.items() if slot.waits is not None}
    of_grown, of_now = _rest(suspects, grown, ranks), _rest(suspects, now, ranks)
    return {
        rank
        for rank in suspects & grown.keys()
        if of_grown[rank].count
        and of_grown[rank].median >= need > grown[rank]
        and of_now[rank].median - now[rank] >= need
    }


def _rest(suspects: Collection[int], values: Mapping[int, float], ranks: Ranks) -> dict[int, Rest]:
    """By suspect: the values of those that it is compared with."""
    groups = _groups(ranks.keys(), ranks)
    of_group: dict[object, list[float]] = {}
    for rank, value in values.items():
        of_group.setdefault(groups[rank], []).append(value)
    whole = Sorted(list(values.values()))
    others = {group: whole.without(of_group.get(group, [])) for group in {groups[rank] for rank in suspects}}
    return {rank: others[groups[rank]] for rank in suspects}


def _as_busy(suspects: Collection[int], ranks: Ranks, tuning: Tuning) -> set[int]:
    """The suspects whose GPU is as busy as the others'."""
    used = {rank: slot.util_pct for rank, slot in ranks.items() if slot.util_pct is not None}
    whole = Sorted(list(used.values()))
    return {
        rank
        for rank in suspects
        if (own := used.get(rank)) is not None
        and (others := whole.without([own])).count
        and own >= others.median - tuning.util_margin_pct
    }


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
