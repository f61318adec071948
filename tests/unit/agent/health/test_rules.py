"""Each rule of passive health: it fires, it nearly fires, its counter is reset, its driver is loaded again."""

from __future__ import annotations

import pytest

from holdfast._base.health import Health
from holdfast.doctor.findings import Finding, Status
from holdfast_agent.core.health import engine
from holdfast_agent.core.health.engine import Drop, Engine, Growth, Level, Reading
from holdfast_agent.core.health.rules import RULES

ROUND_S = 60.0
LEVELS = [name for name, rule in RULES.items() if isinstance(rule.when, Level)]
GROWTHS = [name for name, rule in RULES.items() if isinstance(rule.when, Growth)]
DROPS = [name for name, rule in RULES.items() if isinstance(rule.when, Drop)]


class Clock:
    """An engine that is given a round of readings each minute."""

    def __init__(self, rule: str, kept: tuple[engine.Kept, ...] = ()) -> None:
        self.rule, self.now = rule, 1000.0
        self.engine = Engine(RULES, kept, self.now)

    def read(self, value: float, epoch: str = "driver 1", *, times: int = 1) -> list[Finding]:
        for _ in range(times):
            self.now += ROUND_S
            self.engine.take([Reading(self.rule, "it", value, "what it is", epoch)], self.now)
        return self.engine.findings()

    def wait(self, seconds: float, value: float, epoch: str = "driver 1") -> list[Finding]:
        return self.read(value, epoch, times=round(seconds / ROUND_S))


def level(name: str) -> Level:
    when = RULES[name].when
    assert isinstance(when, Level)
    return when


def growth(name: str) -> Growth:
    when = RULES[name].when
    assert isinstance(when, Growth)
    return when


def stays(name: str) -> bool:
    return RULES[name].health is Health.FAIL


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_fires_once_it_has_been_reached_for_long_enough(name: str) -> None:
    when, clock = level(name), Clock(name)
    rounds = round(when.for_s / ROUND_S)
    assert clock.read(when.at_least, times=rounds) == []
    (found,) = clock.read(when.at_least)
    assert (found.check, found.saw, found.health) == (f"{name}/it", "what it is", RULES[name].health)
    assert found.fix and found.why


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_just_below_never_fires(name: str) -> None:
    assert Clock(name).wait(4 * 3600, level(name).at_least * 0.999) == []


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_that_comes_and_goes_before_its_time_never_fires(name: str) -> None:
    clock = Clock(name)
    for _ in range(50):
        assert clock.read(level(name).at_least) == []
        assert clock.read(0.0) == []


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_closes_once_it_has_been_well_for_long_enough(name: str) -> None:
    when, clock = level(name), Clock(name)
    assert clock.wait(600, when.at_least)
    assert clock.wait(when.clear_s, 0.0)
    assert clock.read(0.0) == []


@pytest.mark.parametrize("name", LEVELS)
def test_a_loaded_driver_begins_a_levels_time_again(name: str) -> None:
    when, clock = level(name), Clock(name)
    clock.read(when.at_least, times=round(when.for_s / ROUND_S))
    assert clock.read(when.at_least, "driver 2") == []


@pytest.mark.parametrize("name", GROWTHS)
def test_a_counter_fires_at_its_growth(name: str) -> None:
    when, clock = growth(name), Clock(name)
    assert clock.read(1e6) == [], "what it had counted before says nothing"
    (found,) = clock.read(1e6 + when.at_least)
    assert found.saw.startswith(f"{when.at_least:,.0f} what it is within ")


@pytest.mark.parametrize("name", GROWTHS)
def test_a_counter_that_grows_too_little_never_fires(name: str) -> None:
    when, clock = growth(name), Clock(name)
    if when.at_least == 1:
        assert clock.wait(7200, 5.0) == []
        return
    each = (when.at_least - 1) * ROUND_S / when.within_s
    for minute in range(300):
        assert clock.read(minute * each) == []


@pytest.mark.parametrize("name", GROWTHS)
def test_a_counter_that_is_reset_has_not_grown(name: str) -> None:
    clock = Clock(name)
    clock.read(1e6)
    assert clock.read(0.0) == []
    assert clock.wait(600, 0.0) == []
    assert clock.read(growth(name).at_least), "from there on it counts"


@pytest.mark.parametrize("name", GROWTHS)
def test_a_counter_of_a_driver_that_was_loaded_again_has_not_grown(name: str) -> None:
    clock = Clock(name)
    clock.read(3.0, "driver 1")
    assert clock.read(1e6, "driver 2") == []
    assert clock.read(1e6 + growth(name).at_least, "driver 2")


@pytest.mark.parametrize("name", GROWTHS)
def test_a_counter_closes_after_its_time_without_growth_unless_it_is_broken_until_the_boot(name: str) -> None:
    when, clock = growth(name), Clock(name)
    clock.read(0.0)
    assert clock.read(when.at_least)
    assert bool(clock.wait(when.within_s + ROUND_S, when.at_least)) is stays(name)


@pytest.mark.parametrize("name", DROPS)
def test_less_than_was_there_before_fires_and_its_return_closes(name: str) -> None:
    clock = Clock(name)
    clock.read(16.0, times=3)
    (found,) = clock.read(8.0, times=4)
    assert found.saw == "what it is; it was 16 before"
    assert clock.wait(660, 16.0) == []


@pytest.mark.parametrize("name", DROPS)
def test_what_was_never_more_is_not_missed(name: str) -> None:
    assert Clock(name).wait(3600, 8.0) == []


@pytest.mark.parametrize("name", DROPS)
def test_a_short_drop_never_fires(name: str) -> None:
    clock = Clock(name)
    for _ in range(20):
        assert clock.read(16.0) == []
        assert clock.read(8.0) == []


@pytest.mark.parametrize("name", DROPS)
def test_a_device_that_was_made_anew_begins_afresh(name: str) -> None:
    clock = Clock(name)
    clock.read(16.0)
    assert clock.wait(3600, 8.0, "driver 2") == []


@pytest.mark.parametrize("name", DROPS)
def test_a_driver_that_is_loaded_again_mends_nothing_that_was_found(name: str) -> None:
    clock = Clock(name)
    clock.read(16.0)
    assert clock.read(8.0, times=4)
    assert clock.wait(3600, 8.0, "driver 2")
    assert clock.wait(660, 16.0, "driver 2") == []


def test_what_cannot_be_read_stands_and_no_time_passes_for_it() -> None:
    clock = Clock("gpu.sram")
    assert clock.read(1.0, times=2)
    clock.now += 3 * 3600
    assert clock.engine.take([], clock.now) is False
    assert len(clock.engine.findings()) == 1
    assert clock.read(0.0), "one good reading after a gap is no ten minutes of them"
    other = Clock("gpu.sram")
    other.read(1.0)
    other.now += 3 * 3600
    assert other.read(1.0) == []


def test_a_subject_that_is_gone_for_a_day_is_forgotten_unless_it_is_broken_until_the_boot() -> None:
    for name, left in (("gpu.sram", 0), ("memory.uncorrected", 1)):
        clock = Clock(name)
        clock.read(0.0)
        assert clock.read(5.0, times=2)
        clock.now += engine.GONE_S
        clock.engine.take([], clock.now)
        assert len(clock.engine.findings()) == left


@pytest.mark.parametrize("name", RULES)
def test_what_stands_outlasts_the_agent_and_says_the_same(name: str) -> None:
    clock, when = Clock(name), RULES[name].when
    bad = 8.0 if isinstance(when, Drop) else when.at_least
    clock.read(16.0 if isinstance(when, Drop) else 0.0)
    before = clock.read(bad, times=6)
    assert before
    again = Clock(name, tuple(clock.engine.kept()))
    again.now = clock.now
    assert again.engine.findings() == before
    assert again.read(bad) == before, "the same reading is no second finding, and no end of it"


def test_a_kept_finding_of_a_rule_that_is_no_more_is_dropped() -> None:
    assert Engine(RULES, [engine.Kept("gpu.colour", "GPU-1", "it is green", 0.0)]).findings() == []


def test_only_the_worst_are_reported_and_the_rest_are_counted() -> None:
    judged = Engine(RULES)
    readings = [Reading("gpu.memory_hot", f"GPU-{number:02}", 99.0, "hot") for number in range(40)]
    for now in (0.0, 60.0):
        judged.take([*readings, Reading("gpu.sram", "GPU-99", 1.0, "broken")], now)
    found = judged.findings()
    assert len(found) == engine.MOST_FINDINGS
    assert found[0].check == "gpu.sram/GPU-99"
    assert found[-1].saw == "hot; and 9 more findings"


def test_no_host_can_make_the_engine_grow_without_end() -> None:
    judged = Engine(RULES)
    judged.take([Reading("gpu.hot", str(number), 0.0, "") for number in range(engine.MOST_WATCHED + 10)], 0.0)
    assert len(judged._watched) == engine.MOST_WATCHED


def test_names_that_change_with_each_run_of_a_check_keep_no_hardware_out() -> None:
    judged = Engine(RULES)
    for number in range(200):
        now = number * ROUND_S
        judged.take([Reading("gpu.hot", f"{number}.{each}", 0.0, "") for each in range(64)], now)
        assert len(judged._watched) <= engine.MOST_WATCHED
    for errors in (0.0, 1.0):
        now += ROUND_S
        judged.take([engine.counted("nvswitch.fatal", "new", errors, "fatal error{}")], now)
    assert [(each.check, each.saw) for each in judged.findings()] == [
        ("nvswitch.fatal/new", "1 fatal error within 24 h")
    ]


def test_large_counts_are_written_out() -> None:
    judged = Engine(RULES)
    for errors in (0.0, 1_234_567.0):
        judged.take([engine.counted("memory.corrected", "mc0", errors, "corrected error{}")], errors / 1e5)
    assert judged.findings()[0].saw == "1,234,567 corrected errors within 1 h"


def test_classes_that_keep_work_away_are_errors() -> None:
    for name in RULES:
        clock, when = Clock(name), RULES[name].when
        clock.read(16.0 if isinstance(when, Drop) else 0.0)
        (found,) = clock.read(8.0 if isinstance(when, Drop) else when.at_least, times=6)
        assert (found.status is Status.ERROR) is RULES[name].health.keeps_work_away
