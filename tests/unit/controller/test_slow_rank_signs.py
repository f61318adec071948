"""The signs of a slow rank: found fast, and just those that a look at all others for each rank finds."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast_controller.core.model.slowness import RankSlot, Sign, Slot, SlowWatch
from holdfast_controller.core.slowness import judge as judging
from holdfast_controller.core.slowness import signs
from holdfast_controller.core.slowness.others import Sorted
from holdfast_controller.core.slowness.pace import NORMAL, Look
from holdfast_controller.core.slowness.signs import Change, Ranks, signs_of
from holdfast_controller.core.slowness.thresholds import TUNING, Tuning

NUMBERS = st.sampled_from([0.0, 0.1, 0.1, 0.25, 0.3, 0.7, 1.0, 5.0]) | st.floats(-2, 2)


@settings(max_examples=500, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=30), st.data())
def test_medians_without_a_few_are_those_of_all_the_others(values: list[float], data: st.DataObject) -> None:
    out = data.draw(st.sets(st.integers(0, len(values) - 1), max_size=len(values)))
    whole = Sorted(values)
    rest = whole.without([values[index] for index in out])
    left = [value for index, value in enumerate(values) if index not in out]
    assert rest.count == len(left)
    if left:
        middle = median(left)
        assert rest.median == middle
        assert rest.deviation == median(abs(value - middle) for value in left)
        low, high = whole.middle_without(len(out))
        assert low <= middle <= high


SHARES = st.none() | st.sampled_from([0.0, 0.1, 0.3, 0.9]) | st.floats(0, 1)
SLOTS = st.builds(
    RankSlot,
    host=st.sampled_from(["h0", "h1", "h2"]),
    waits=SHARES,
    no_core=SHARES,
    stopped=SHARES,
    clock_mhz=st.none() | st.sampled_from([0.0, 900.0, 1400.0, 1410.0]),
    util_pct=st.none() | st.sampled_from([20.0, 90.0, 99.0]),
    power_w=st.none() | st.sampled_from([0.0, 300.0, 690.0, 700.0]),
    step_ms=st.none() | st.sampled_from([100.0, 101.0, 130.0]),
)
TWO = st.lists(st.tuples(SLOTS, SLOTS), min_size=2, max_size=14)


@pytest.mark.parametrize("one_host", [True, False])
@given(TWO, st.floats(0.01, 0.6))
@settings(max_examples=300, deadline=None)
def test_signs_are_those_that_a_look_at_all_others_finds(
    one_host: bool, slots: list[tuple[RankSlot, RankSlot]], lost: float
) -> None:
    usual = {n: replace(slot, host="h0") if one_host else slot for n, (slot, _) in enumerate(slots)}
    now = {n: replace(slot, host=usual[n].host) for n, (_, slot) in enumerate(slots)}
    found = signs_of(now, usual, lost, frozenset({"h1"}), TUNING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signs, "_outstanding", _outstanding)
        patch.setattr(signs, "_others_wait_more", _all_others_wait_more)
        patch.setattr(signs, "_as_busy", _all_as_busy)
        assert signs_of(now, usual, lost, frozenset({"h1"}), TUNING) == found


def test_a_rank_of_many_on_one_host_is_found() -> None:
    usual = {n: RankSlot("h0", waits=0.3, no_core=0.01) for n in range(400)}
    now = {n: replace(slot, waits=0.5) for n, slot in usual.items()}
    now[7] = RankSlot("h0", waits=0.0, no_core=0.4)
    assert signs_of(now, usual, 0.3, frozenset(), TUNING) == {7: {Sign.NO_CORE, Sign.WAITED_FOR}}


# A look at all others for each rank


def _outstanding(
    ranks: Ranks, usual: Ranks, change: Change, least: float, floor: float, tuning: Tuning
) -> list[int]:
    changes = {rank: value for rank, slot in ranks.items() if (value := change(usual[rank], slot)) is not None}
    several = len({ranks[rank].host for rank in changes}) > 1
    found = []
    for rank, value in changes.items():
        host = ranks[rank].host
        others = [
            each for other, each in changes.items() if (ranks[other].host != host if several else other != rank)
        ]
        if not others:
            continue
        middle = median(others)
        deviation = NORMAL * median(abs(each - middle) for each in others)
        apart = abs(value - middle) if change is signs._power_apart else value - middle
        if apart >= least and apart >= tuning.deviations * max(deviation, floor / tuning.deviations, 1e-9):
            found.append(rank)
    return found


def _all_others_wait_more(suspects: set[int], ranks: Ranks, usual: Ranks, need: float, kept: float) -> set[int]:
    return {rank for rank in suspects if _waits_alone(rank, ranks, usual, need, kept)}


def _waits_alone(rank: int, ranks: Ranks, usual: Ranks, need: float, kept: float) -> bool:
    host, several = ranks[rank].host, len({slot.host for slot in ranks.values()}) > 1
    change = signs._grown("waits", kept)
    beside = [each for each in ranks if (ranks[each].host != host if several else each != rank)]
    grown = [value for each in beside if (value := change(usual[each], ranks[each])) is not None]
    waits = [now for each in beside if (now := ranks[each].waits) is not None]
    own, now = change(usual[rank], ranks[rank]), ranks[rank].waits
    if not grown or own is None or now is None:
        return False
    return median(grown) >= need > own and median(waits) - now >= need


def _all_as_busy(suspects: set[int], ranks: Ranks, tuning: Tuning) -> set[int]:
    return {rank for rank in suspects if _is_as_busy(rank, ranks, tuning)}


def _is_as_busy(rank: int, ranks: Ranks, tuning: Tuning) -> bool:
    own = ranks[rank].util_pct
    others = [slot.util_pct for other, slot in ranks.items() if other != rank and slot.util_pct is not None]
    return own is not None and bool(others) and own >= median(others) - tuning.util_margin_pct


def test_ranks_that_wait_for_their_device_most_of_the_time_are_seen_to_wait_for_a_stopped_one() -> None:
    """Means of a real gang: a step of 198 ms took 420 once rank 2 was stopped half of the time."""
    usual = {n: RankSlot(f"h{n // 2}", waits=0.84, no_core=0.1, stopped=0.0) for n in range(4)}
    now = {n: replace(slot, waits=0.92, no_core=0.05) for n, slot in usual.items()}
    now[2] = replace(usual[2], waits=0.37, no_core=0.07, stopped=0.53)
    assert signs_of(now, usual, 1 - 198 / 420, frozenset(), TUNING) == {2: {Sign.STOPPED, Sign.WAITED_FOR}}


def test_a_rank_with_longer_batches_has_no_sign_of_its_place_however_long_the_others_wait_for_their_device() -> (
    None
):
    usual = {n: RankSlot(f"h{n // 2}", waits=0.84, no_core=0.1, stopped=0.0) for n in range(4)}
    now = {n: replace(slot, waits=0.92, no_core=0.05) for n, slot in usual.items()}
    now[2] = replace(usual[2], waits=0.4, no_core=0.06)
    assert signs_of(now, usual, 1 - 198 / 420, frozenset(), TUNING) == {2: {Sign.WAITED_FOR}}


def test_more_work_on_a_busy_host_is_no_lack_of_cores() -> None:
    """Means of a real gang on a machine with a load of 20: rank 2 had more to do, and less of a core."""
    usual = {n: RankSlot(f"h{n // 2}", waits=0.76, no_core=0.2, stopped=0.0) for n in range(4)}
    now = {n: replace(slot, waits=0.82, no_core=0.15) for n, slot in usual.items()}
    now[2] = replace(usual[2], waits=0.56, no_core=0.37)
    assert signs_of(now, usual, 1 - 253 / 330, frozenset(), TUNING) == {2: {Sign.WAITED_FOR}}
    now[2] = replace(usual[2], waits=0.6, no_core=0.37)
    assert Sign.NO_CORE in signs_of(now, usual, 1 - 253 / 330, frozenset(), TUNING)[2]


def test_a_rank_that_is_stopped_waits_a_little_more_itself() -> None:
    """Means of two minutes of a gang of which rank 0 is stopped for a part of its time, as 60 looks have them."""
    usual = {n: RankSlot(f"h{n}", waits=0.13, no_core=0.0, stopped=0.0) for n in range(3)}
    now = {n: replace(slot, waits=0.36) for n, slot in usual.items()}
    now[0] = replace(usual[0], waits=0.176, stopped=0.15)
    assert signs_of(now, usual, 0.23, frozenset(), TUNING) == {0: {Sign.STOPPED, Sign.WAITED_FOR}}


GUILTY, ALIKE, QUIET = "guilty", "alike", "quiet"


@pytest.mark.parametrize(
    ("looks", "named_at"),
    [
        ([GUILTY] * 3, 3),
        ([GUILTY, QUIET, GUILTY, QUIET, GUILTY], 5),
        ([GUILTY, GUILTY, QUIET, QUIET, QUIET, GUILTY], None),
        ([GUILTY, QUIET, QUIET, GUILTY, GUILTY, QUIET, GUILTY], 5),
        ([GUILTY, GUILTY, ALIKE, QUIET, GUILTY], 5),
        ([GUILTY, GUILTY, ALIKE], None),
    ],
)
def test_a_sign_counts_that_was_seen_at_three_of_five_looks(looks: list[str], named_at: int | None) -> None:
    usual = {n: RankSlot(f"h{n}", waits=0.1, no_core=0.0, stopped=0.0) for n in range(3)}
    watch = SlowWatch(best_ms=100.0, usual=usual, slow_since_s=0.0)
    slow = {n: replace(slot, waits=0.4) for n, slot in usual.items()}
    guilty = slow | {0: replace(usual[0], stopped=0.3)}
    kinds = {GUILTY: guilty, ALIKE: guilty | {1: replace(usual[1], stopped=0.3)}, QUIET: slow}
    named = []
    for number, kind in enumerate(looks):
        watch.slots = [Slot(30.0 * number, 30.0 * number + 30, 140.0, kinds[kind])] * TUNING.window
        found = judging._who(watch, Look(30.0 * number, 1.0, False, {}), 140.0, 0.0, TUNING)
        named.append([each.rank for each in found.named])
    first = next((number for number, ranks in enumerate(named, 1) if ranks), None)
    assert (first, named[-1]) == (named_at, [0] if named_at else [])


def test_two_others_that_always_waited_unlike_each_other_are_alike_in_that_they_wait_more() -> None:
    """Of a gang of three with ranks that have unlike work: rank 2 is stopped, and a step takes a quarter longer."""
    usual = {
        n: RankSlot(f"h{n // 2}", waits=waits, no_core=0.0, stopped=0.0) for n, waits in enumerate((0.2, 0.1, 0.05))
    }
    now = {0: replace(usual[0], waits=0.34), 1: replace(usual[1], waits=0.245)}
    now[2] = replace(usual[2], waits=0.04, stopped=0.26)
    assert signs_of(now, usual, 0.195, frozenset(), TUNING) == {2: {Sign.STOPPED, Sign.WAITED_FOR}}


def _judged(watch: SlowWatch, guilty: bool, step_ms: float, slots: int) -> list[judging.Slow | None]:
    """Slots of a gang of three, with rank 0 stopped for a tenth of its time or none at fault."""
    usual = {n: RankSlot(f"h{n}", waits=0.1, no_core=0.0, stopped=0.0) for n in range(3)}
    now = {n: replace(slot, waits=0.18) for n, slot in usual.items()}
    if guilty:
        now[0] = replace(usual[0], waits=0.1, stopped=0.1)
    found = []
    for number in range(slots):
        slot = Slot(30.0 * number, 30.0 * number + 30, step_ms, now)
        watch.slots = [*watch.slots, slot][-TUNING.recent :]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(judging, "note_look", lambda *_: watch.slots[-1])
            found.append(judging.judge(watch, Look(30.0 * number, 1.0, False, {}), 1).slow)
    return found


def test_a_job_that_is_a_little_slower_is_called_slow_only_if_a_rank_is_named() -> None:
    usual = {n: RankSlot(f"h{n}", waits=0.1, no_core=0.0, stopped=0.0) for n in range(3)}
    assert not any(_judged(SlowWatch(best_ms=100.0, usual=usual), guilty=False, step_ms=107.0, slots=12))
    watch = SlowWatch(best_ms=100.0, usual=usual)
    said = _judged(watch, guilty=True, step_ms=107.0, slots=10)
    named = [[each.rank for each in slow.named] if slow is not None else None for slow in said]
    assert named == [None] * 7 + [[0]] * 3, "six slots for a pace, and three looks"
    after = _judged(watch, guilty=False, step_ms=101.0, slots=6)
    assert after[-1] is None and watch.slow_since_s is None


@pytest.mark.parametrize("step_ms", [103.5, 104.0, 107.0, 120.0])
def test_a_job_stays_slow_though_the_signs_of_its_rank_come_and_go(step_ms: float) -> None:
    usual = {n: RankSlot(f"h{n}", waits=0.1, no_core=0.0, stopped=0.0) for n in range(3)}
    watch = SlowWatch(best_ms=100.0, usual=usual)
    assert _judged(watch, guilty=True, step_ms=step_ms, slots=10)[-1]
    assert all(slow for _ in range(5) for guilty in (False, True) for slow in _judged(watch, guilty, step_ms, 4))
    assert _judged(watch, guilty=False, step_ms=101.0, slots=6)[-1] is None


def test_what_is_within_the_spread_of_a_job_is_not_looked_at() -> None:
    usual = {n: RankSlot(f"h{n}", waits=0.1, no_core=0.0, stopped=0.0) for n in range(3)}
    assert not any(
        _judged(SlowWatch(best_ms=100.0, spread=0.04, usual=usual), guilty=True, step_ms=107.0, slots=12)
    )
