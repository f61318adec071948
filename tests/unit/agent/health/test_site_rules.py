"""Rules of the site's own: what they may say, what a program may print, and when its values are findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast._base.health import Health
from holdfast.errors import ConfigError
from holdfast_agent.core.health.engine import Engine, Growth, Level, Reading
from holdfast_agent.core.health.rules import RULES
from holdfast_agent.core.health.site_rules import MOST_SUBJECTS, HealthRule, printed, rules
from holdfast_agent.shell import config

FAN = ("/etc/holdfast/fan.sh",)


def test_without_any_the_rules_are_ours() -> None:
    assert rules({}) == RULES


def test_a_check_of_the_site_is_a_rule_with_defaults() -> None:
    made = rules({"fan": HealthRule(FAN)})["site.fan"]
    assert (made.when, made.health) == (Level(1.0, 0.0, 600.0), Health.DEGRADED)


def test_a_check_may_count_and_keep_work_away() -> None:
    made = rules({"resets": HealthRule(FAN, at_least=3, within=3_600.0, health="CORDON", why="w", fix="f")})
    assert (made["site.resets"].when, made["site.resets"].health) == (Growth(3, 3_600.0), Health.CORDON)
    assert (made["site.resets"].why, made["site.resets"].fix) == ("w", "f")


def test_bounds_and_class_of_a_rule_of_ours_can_be_others() -> None:
    made = rules(
        {"gpu.memory_hot": HealthRule(at_least=90.0, health="INFORM"), "ib.flaps": HealthRule(within=60.0)}
    )
    assert made["gpu.memory_hot"].when == Level(90.0, 60.0, 300.0)
    assert made["gpu.memory_hot"].health is Health.INFORM
    assert made["ib.flaps"].when == Growth(3.0, 60.0)
    assert made["gpu.memory_hot"].why == RULES["gpu.memory_hot"].why


def test_what_is_off_is_no_rule() -> None:
    made = rules({"ib.errors": HealthRule(health="OFF"), "fan": HealthRule(FAN, health="OFF")})
    assert made == {name: rule for name, rule in RULES.items() if name != "ib.errors"}


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("fan", {}, "health.fan.command must begin"),
        ("fan", {"command": ("fan.sh",)}, "health.fan.command must begin"),
        ("Fan 1", {"command": FAN}, "health.Fan 1: the name may hold"),
        ("gpu.melted", {}, "there is no rule"),
        ("gpu.hot", {"command": FAN}, "is a rule of ours"),
        ("fan", {"command": FAN, "every": 1.0}, "health.fan.every is 1 s"),
        ("fan", {"command": FAN, "timeout": 0.0}, "health.fan.timeout is 0 s"),
        ("fan", {"command": FAN, "health": "BAD"}, "health.fan.health is"),
        ("fan", {"command": FAN, "at_least": -1.0}, "health.fan.at_least is -1"),
        ("fan", {"command": FAN, "duration": 9e9}, "health.fan.duration is"),
        ("fan", {"command": FAN, "within": 60.0, "clear": 5.0}, "health.fan.clear has no meaning here"),
        ("fan", {"command": FAN, "within": 0.0}, "must be above 0"),
        ("ib.port", {"at_least": 2.0}, "health.ib.port.at_least has no meaning here"),
        ("gpu.hot", {"within": 60.0}, "health.gpu.hot.within has no meaning here"),
    ],
)
def test_what_is_wrong_is_named(name: str, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rules({name: HealthRule(**keys)})
    assert said in str(refused.value) and refused.value.fix


def test_a_settings_file_with_a_wrong_rule_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    head = "".join(f'{key} = "x"\n' for key in ("controller", "name", "state_dir", "log_dir", "ca", "cert", "key"))
    path.write_text(f'{head}[health.fan]\ncommand = ["/bin/fan"]\nhealth = "WORSE"\n')
    with pytest.raises(ConfigError, match=r"agent.toml:10: .*WORSE"):
        config.load(path)
    path.write_text(f'{head}[health.fan]\ncommand = ["/bin/fan"]\n[health."gpu.memory_hot"]\nat_least = 90\n')
    assert config.load(path).health["gpu.memory_hot"].at_least == 90.0


def test_a_program_prints_a_line_for_each_subject() -> None:
    said = b'{"subject": "fan1", "value": 312, "saw": "fan 1 is slow"}\n\n{"subject": "fan2", "value": true}\n'
    assert printed("fan", said) == [
        Reading("site.fan", "fan1", 312.0, "fan 1 is slow"),
        Reading("site.fan", "fan2", 1.0, "fan of fan2 is 1"),
    ]
    assert printed("fan", b'{"value": 0}') == [Reading("site.fan", "host", 0.0, "fan of host is 0")]


def test_of_a_subject_that_is_printed_twice_the_larger_value_counts() -> None:
    said = b'{"value": 0}\n{"value": 1, "saw": "fan 1 stands still"}\n{"value": 0, "saw": "fan 2 runs"}\n'
    assert printed("fan", said) == [Reading("site.fan", "host", 1.0, "fan 1 stands still")]


def test_what_it_prints_is_made_safe_and_short() -> None:
    (found,) = printed("fan", b'{"value": 1, "saw": "\\u001b[2Jx\\ny", "subject": "' + b"s" * 5_000 + b'"}')
    assert "\x1b" not in found.saw and "\n" not in found.saw
    assert len(found.subject) <= 200


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"well",
        b"[1]",
        b"{}",
        b'{"value": "1"}',
        b'{"value": NaN}',
        b'{"value": 1e999}',
        b'{"value": 1, "saw": 5}',
        b'{"value": 1, "subject": null}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"value": ' + b"9" * 400 + b"}",
        b"\n".join(b'{"value": 1, "subject": "s%d"}' % n for n in range(MOST_SUBJECTS + 1)),
    ],
)
def test_anything_else_says_nothing_of_the_host(said: bytes) -> None:
    with pytest.raises(ValueError, match="line"):
        printed("fan", said)


def test_a_value_is_judged_as_every_other_nearly_so_and_after_a_gap() -> None:
    engine = Engine(rules({"fan": HealthRule(FAN, at_least=5.0, duration=60.0, clear=60.0)}))

    def take(value: float, now: float) -> list[str]:
        engine.take([Reading("site.fan", "fan1", value, "slow")], now)
        return [found.check for found in engine.findings()]

    assert take(5.0, 0.0) == []
    assert take(4.9, 60.0) == [], "it was bad for too short a time"
    assert take(5.0, 120.0) == []
    assert take(5.0, 180.0) == ["site.fan/fan1"]
    assert take(4.9, 200.0) == ["site.fan/fan1"]
    assert take(4.9, 260.0) == []
