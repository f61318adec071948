"""Real gangs that were recorded once (``bench/stragglers/real.py``): who is named, and who isn't."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench.stragglers.real import CASES, GUILTY, SCALED, Case, file_of, read
from bench.stragglers.replayed import drawn, judged, pieces

from holdfast_controller.core.model.slowness import SlowWatch
from holdfast_controller.core.slowness.judge import judge

RECORDED = Path(__file__).parents[3] / "fixtures" / "stragglers"
KEPT = [case for case in CASES if file_of(RECORDED, case).exists()]


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case.name)
def test_a_rank_of_a_real_gang_is_named_within_five_minutes_where_its_place_is_to_blame_and_only_there(
    case: Case,
) -> None:
    watch, named, began_s = SlowWatch(), set[int](), 0.0
    for began, look in read(file_of(RECORDED, case)):
        began_s = began_s or (look.at_s if began else 0.0)
        found = judge(watch, look, 1, SCALED).slow
        if found is not None and (look.at_s - began_s) / (SCALED.slot_s / 30) <= 300:
            named |= {each.rank for each in found.named}
        if found is not None:
            assert {each.rank for each in found.named} <= case.named
    assert named == case.named


def test_a_recording_in_another_order_is_judged_alike() -> None:
    case = next(case for case in KEPT if "half of its time" in case.name)
    looks = read(file_of(RECORDED, case))
    well = pieces([look for began, look in looks if not began])[6:]
    fault = pieces([look for began, look in looks if began])
    rng = random.Random(7)
    slow_s, named = judged(list(drawn(well, 60, rng)), list(drawn(fault, 42, rng)))
    assert slow_s is not None
    assert set(named) == {frozenset({GUILTY})}
    assert judged(list(drawn(well, 60, rng)), list(drawn(well, 42, rng)))[1] == {}
