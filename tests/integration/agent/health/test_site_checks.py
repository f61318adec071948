"""The site's own checks, by real programs: what they say is judged, and a program that fails condemns no host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast._base.health import Health
from holdfast_agent.core.health.site_rules import PROGRAM, HealthRule
from holdfast_agent.shell.health.site_checks import SiteChecks


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "check.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return (str(path),)


async def said(folder: Path, text: str, *, timeout: float = 30.0) -> tuple[list[tuple[str, float]], str]:
    """The (subject, value) that a program said, and why it said nothing."""
    rule = HealthRule(script(folder, text), timeout=timeout, health=Health.CORDON.name)
    checks = SiteChecks({"fan": rule})
    await checks.run_once("fan", rule)
    found = checks.readings()
    (told,) = [each for each in found if each.rule == PROGRAM]
    values = [(each.subject, each.value) for each in found if each.rule == "site.fan"]
    assert told.value == (0.0 if values else 1.0)
    return values, "" if values else told.saw


async def test_its_lines_are_readings(tmp_path: Path) -> None:
    text = """echo "{\\"subject\\": \\"$HOLDFAST_CHECK\\", \\"value\\": 3}" """
    assert await said(tmp_path, text) == ([("fan", 3.0)], "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("echo broken pipe >&2; exit 3", "it failed with code 3: broken pipe"),
        ("kill -SEGV $$", "it was killed by signal 11"),
        ("echo all is well", "line 1 is no JSON"),
        ("true", "it printed no line"),
        ("head -c 200000 /dev/zero | tr '\\\\0' ' '", "it printed too much"),
    ],
)
async def test_a_program_that_fails_says_nothing_of_its_host(tmp_path: Path, text: str, problem: str) -> None:
    values, why = await said(tmp_path, text)
    assert (values, why) == ([], f"{tmp_path}/check.sh: {problem}")


async def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    values, why = await said(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; wait", timeout=4.0)
    assert values == [] and "4 s" in why
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_program_that_is_missing_is_told_of(tmp_path: Path) -> None:
    rule = HealthRule((str(tmp_path / "none"),))
    checks = SiteChecks({"fan": rule})
    await checks.run_once("fan", rule)
    assert [(each.rule, each.subject, each.value) for each in checks.readings()] == [(PROGRAM, "fan", 1.0)]


async def test_after_a_failure_what_was_said_before_is_not_said_again(tmp_path: Path) -> None:
    rule = HealthRule(script(tmp_path, """echo '{"value": 9}'"""))
    checks = SiteChecks({"fan": rule})
    await checks.run_once("fan", rule)
    script(tmp_path, "exit 1")
    await checks.run_once("fan", rule)
    assert [each.rule for each in checks.readings()] == [PROGRAM]
