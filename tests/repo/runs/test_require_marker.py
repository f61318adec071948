"""The ``require`` marker: a missing part skips visibly, and fails where it is said to be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support import machine_parts

CONFTEST = Path(__file__).parents[2] / "conftest.py"
INI = """
[pytest]
addopts = --strict-markers
markers = require(part): as in the project
anyio_mode = auto
"""


Tried = dict[str, int]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Tried:
    """A machine that has ``cc`` and no ``netns``; counts how often each was tried."""
    tried = {"cc": 0, "netns": 0}

    def probe(part: str, there: bool) -> Callable[[], bool]:
        def run() -> bool:
            tried[part] += 1
            return there

        return run

    monkeypatch.setattr(machine_parts, "PROBES", {"cc": probe("cc", True), "netns": probe("netns", False)})
    monkeypatch.delenv("HOLDFAST_REQUIRE", raising=False)
    machine_parts.has.cache_clear()
    return tried


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    yield
    machine_parts.has.cache_clear()


def run(pytester: pytest.Pytester, *marks: str) -> pytest.RunResult:
    """Run one test a mark under the project's own conftest."""
    pytester.makeini(INI)
    # Already registered by the outer run.
    pytester.makeconftest(CONFTEST.read_text().replace('pytest_plugins = ["pytester"]', ""))
    tests = (f"@pytest.mark.require({mark})\ndef test_{n}():\n    pass\n" for n, mark in enumerate(marks))
    pytester.makepyfile("import pytest\n\n" + "\n".join(tests))
    return pytester.runpytest("-rs", "-p", "no:cacheprovider")


def test_part_that_is_there_runs_the_test(pytester: pytest.Pytester, probes: Tried) -> None:
    run(pytester, '"cc"').assert_outcomes(passed=1)


def test_missing_part_skips_and_says_so(pytester: pytest.Pytester, probes: Tried) -> None:
    result = run(pytester, '"netns"')
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*needs netns, which this machine lacks*"])


def test_missing_part_that_is_demanded_fails_and_says_so(
    pytester: pytest.Pytester, probes: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REQUIRE", "cc, netns")
    result = run(pytester, '"netns"', '"cc"')
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*needs netns, which this machine lacks, though HOLDFAST_REQUIRE names it*"])


def test_demanding_another_part_still_skips(
    pytester: pytest.Pytester, probes: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REQUIRE", "cc")
    run(pytester, '"netns"').assert_outcomes(skipped=1)


def test_every_part_of_a_marker_counts(pytester: pytest.Pytester, probes: Tried) -> None:
    run(pytester, '"cc", "netns"').assert_outcomes(skipped=1)


def test_each_part_is_tried_once(pytester: pytest.Pytester, probes: Tried) -> None:
    run(pytester, '"cc"', '"cc"', '"netns"', '"netns"').assert_outcomes(passed=2, skipped=2)
    assert probes == {"cc": 1, "netns": 1}


def test_unknown_part_in_a_marker_fails(pytester: pytest.Pytester, probes: Tried) -> None:
    result = run(pytester, '"warp"')
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no part of a machine is called 'warp'; known: cc, netns*"])


def test_unknown_part_in_the_environment_stops_the_run(
    pytester: pytest.Pytester, probes: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REQUIRE", "cc,warp")
    result = run(pytester, '"cc"')
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*HOLDFAST_REQUIRE: no part of a machine is called 'warp'*"])


@pytest.mark.parametrize("value", ["", " ", ","])
def test_empty_demand_is_none(value: str) -> None:
    assert machine_parts.demanded({"HOLDFAST_REQUIRE": value}) == frozenset()


def test_command_that_is_not_there_is_a_missing_part() -> None:
    assert not machine_parts._works("holdfast-no-such-command")
