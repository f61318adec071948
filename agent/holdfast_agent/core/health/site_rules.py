"""Rules of the site's own: other bounds for ours, and checks whose readings a program of the site prints.

A program prints a line of JSON for each subject, ``{"subject": "fan1", "value": 312, "saw": "312 turns/min"}``, and
its rule judges the value as any other. A program that fails, hangs or prints something else has said nothing of the
host: that is reported as a finding of class INFORM, and what was found before stands.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from holdfast._base.dataclass import dataclass, replace
from holdfast._base.health import Health, shown
from holdfast._base.printable import one_line
from holdfast.errors import ConfigError
from holdfast_agent.core.health.engine import Drop, Growth, Level, Reading, Rule
from holdfast_agent.core.health.rules import HOUR_S, RULES

SITE = "site."
PROGRAM = "health.program"
OFF = "OFF"
LEAST_EVERY_S, MOST_TIMEOUT_S = 10.0, 600.0
MOST_CHECKS = 32
MOST_SUBJECTS = 64
MOST_CHARACTERS = 200
LONGEST_S = 7 * 86_400.0
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_CLASSES = ", ".join(each.name for each in Health)


@dataclass(frozen=True)
class HealthRule:
    """``[health.NAME]`` of agent.toml: a check of the site's own; named as a rule, "gpu.memory_hot", its bounds."""

    command: tuple[str, ...] = ()
    """A program's absolute path and its arguments; it prints a line of JSON for each subject. Only of own checks."""
    every: float = 300.0
    """Time between two runs of it."""
    timeout: float = 30.0
    """Time that a run may take."""
    health: str = ""
    """Class of what it finds: FAIL, CORDON, DEGRADED or INFORM; DEGRADED unless set, or a rule's own. OFF: no check."""
    at_least: float | None = None
    """The value from which on it is bad; 1 unless set for own checks."""
    duration: float | None = None
    """How long it has to be bad."""
    clear: float | None = None
    """How long all has to be well, for the finding to end."""
    within: float | None = None
    """Makes it a counter: it is bad when the value has grown by ``at_least`` within that time."""
    why: str = ""
    """What comes of it, for who reads the finding."""
    fix: str = ""
    """What to type; SUBJECT stands for the subject."""


def rules(site: Mapping[str, HealthRule]) -> dict[str, Rule]:
    """All rules, with the site's. Raises ``ConfigError`` that names the key."""
    found = dict(RULES)
    if sum(bool(each.command) for each in site.values()) > MOST_CHECKS:
        raise ConfigError(
            f"health has more than {MOST_CHECKS} checks with a command.", fix="Join some in one program."
        )
    for name, said in site.items():
        place = f"health.{name}"
        if name in RULES:
            if said.command:
                raise ConfigError(
                    f"{place}.command: {name} is a rule of ours.", fix="Give your check another name."
                )
            found[name] = _other_bounds(place, RULES[name], said)
        else:
            found[SITE + name] = _own(place, name, said)
        if said.health == OFF:
            found.pop(name if name in RULES else SITE + name)
    return found


def _own(place: str, name: str, said: HealthRule) -> Rule:
    if not said.command and "." in name:
        raise ConfigError(f"{place}: there is no rule {name!r}.", fix=f"The rules: {', '.join(RULES)}.")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{place}: the name may hold a-z, 0-9, _ and - only, at most 32.", fix="Rename the table."
        )
    if not said.command or not said.command[0].startswith("/"):
        fix = f'For example: command = ["/etc/holdfast/{name}.sh"].'
        raise ConfigError(f"{place}.command must begin with a program's absolute path.", fix=fix)
    if said.every < LEAST_EVERY_S:
        raise ConfigError(
            f"{place}.every is {said.every:g} s.", fix=f"Write {LEAST_EVERY_S:g}s or more, such as 5m."
        )
    if not 0 < said.timeout <= MOST_TIMEOUT_S:
        raise ConfigError(f"{place}.timeout is {said.timeout:g} s.", fix=f"Write at most {MOST_TIMEOUT_S:g}s.")
    why = said.why or "A check of this site says so."
    start = Rule(Level(for_s=0.0), Health.DEGRADED, why, said.fix or said.command[0])
    if said.within is not None:
        start = replace(start, when=Growth(1.0, HOUR_S))
    return _other_bounds(place, start, said)


def _other_bounds(place: str, rule: Rule, said: HealthRule) -> Rule:
    for key in ("at_least", "duration", "clear", "within"):
        value = getattr(said, key)
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{place}.{key} is {value:g}.", fix="Write 0 or more.")
        if key != "at_least" and value is not None and value > LONGEST_S:
            raise ConfigError(f"{place}.{key} is {value:g} s.", fix="Write at most 7d.")
    match rule.when:
        case Growth() as when:
            _has_none(place, said, "duration", "clear", why="a counter has within")
            within = when.within_s if said.within is None else said.within
            if within <= 0 or said.at_least == 0:
                raise ConfigError(f"{place}: at_least and within must be above 0.", fix='Such as within = "1h".')
            when = Growth(when.at_least if said.at_least is None else said.at_least, within)
            rule = replace(rule, when=when)
        case Level() as level:
            _has_none(place, said, "within", why="it is no counter")
            at_least = level.at_least if said.at_least is None else said.at_least
            rule = replace(rule, when=Level(at_least, *_times(said, level.for_s, level.clear_s)))
        case Drop() as drop:
            _has_none(place, said, "within", "at_least", why="it compares with what was there before")
            rule = replace(rule, when=Drop(*_times(said, drop.for_s, drop.clear_s)))
    if said.health and said.health != OFF:
        if said.health not in Health.__members__:
            raise ConfigError(f"{place}.health is {said.health!r}.", fix=f"Write {_CLASSES} or {OFF}.")
        rule = replace(rule, health=Health[said.health])
    return replace(rule, why=said.why or rule.why, fix=said.fix or rule.fix)


def _has_none(place: str, said: HealthRule, *keys: str, why: str) -> None:
    for key in keys:
        if getattr(said, key) is not None:
            raise ConfigError(f"{place}.{key} has no meaning here: {why}.", fix="Leave it out.")


def _times(said: HealthRule, for_s: float, clear_s: float) -> tuple[float, float]:
    return (
        for_s if said.duration is None else said.duration,
        clear_s if said.clear is None else said.clear,
    )


def printed(name: str, said: bytes) -> list[Reading]:
    """The readings that a program has printed for the check ``name``. Raises ``ValueError`` that names the bad line."""
    found: dict[str, Reading] = {}
    for number, line in enumerate(said.splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is no JSON") from error
        if not isinstance(told, dict):
            raise ValueError(f"line {number} is no JSON object")
        value = told.get("value")
        if isinstance(value, bool):
            value = float(value)
        if not isinstance(value, int | float) or abs(value) > 1e18 or not math.isfinite(value):
            raise ValueError(f"line {number} has no value that is a number")
        subject, saw = told.get("subject", "host"), told.get("saw", "")
        if not isinstance(subject, str) or not isinstance(saw, str):
            raise ValueError(f"line {number}: subject and saw must be texts")
        subject = one_line(subject, MOST_CHARACTERS).strip() or "host"
        if len(found) >= MOST_SUBJECTS:
            raise ValueError(f"more than {MOST_SUBJECTS} lines")
        saw = one_line(saw, MOST_CHARACTERS).strip() or f"{name} of {subject} is {shown(value)}"
        if subject not in found or value > found[subject].value:  # what is bad is not hidden by a line that follows
            found[subject] = Reading(SITE + name, subject, float(value), saw)
    if not found:
        raise ValueError("it printed no line")
    return list(found.values())
