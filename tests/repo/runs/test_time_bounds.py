"""No test fails because its machine stood still for some seconds: what asserts that little time has passed is wide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
LEAST_S = 15
"""A shared machine that is busy may give a test nothing for some seconds."""
CLOCKS = ("monotonic", "perf_counter", "time", "process_time", "thread_time")
"""The last two run on their own, too: beside others that are busy the same work takes up to three times as long."""
_CALLED = re.compile(rf"\.\s*({'|'.join(CLOCKS)})\s*\(")


def near_bounds(source: str) -> Iterator[int]:
    """Lines that assert of a time which has passed, by a clock that runs on its own, that it is less than so little."""
    for asserted in ast.walk(ast.parse(source)) if _CALLED.search(source) else ():
        if isinstance(asserted, ast.Assert):
            yield from (asserted.lineno for each in ast.walk(asserted.test) if _is_near(each))


def _is_near(found: ast.AST) -> bool:
    if not isinstance(found, ast.Compare):
        return False
    parts = [found.left, *found.comparators]
    return any(
        isinstance(less, (ast.Lt, ast.LtE))
        and _has_passed(passed)
        and isinstance(bound, ast.Constant)
        and isinstance(bound.value, (int, float))
        and bound.value < LEAST_S
        for passed, less, bound in zip(parts, found.ops, parts[1:], strict=False)
    )


def _has_passed(value: ast.expr) -> bool:
    """Whether it is ``time.monotonic() - began`` or the like."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return False
    now = value.left
    return isinstance(now, ast.Call) and isinstance(now.func, ast.Attribute) and now.func.attr in CLOCKS


def test_no_time_that_has_passed_is_held_to_less_than_a_busy_machine_takes() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in near_bounds(path.read_text())
    ]
    assert not found, f"allow {LEAST_S} s or more, or use tests.support.promptness or tests.support.work"


@pytest.mark.parametrize(
    ("line", "is_near"),
    [
        ("assert time.monotonic() - began < 8", True),
        ("assert 3 < time.monotonic() - began <= 8.5, 'late'", True),
        ("assert (code, time.perf_counter() - began < 1) == (0, True)", True),
        ("assert 3 < time.monotonic() - began", False),
        ("assert time.monotonic() - began < 30", False),
        ("assert time.process_time() - began < 1", True),
        ("assert time.monotonic() - began < 4 * TERM_S", False),
    ],
)
def test_which_bounds_are_near(line: str, is_near: bool) -> None:
    assert list(near_bounds(line)) == [1] * is_near
