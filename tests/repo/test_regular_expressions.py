"""No regular expression takes long on a text that somebody chose."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.regex_growth import Growth, growth

from holdfast.hang.pipeline import frame_waits

ROOT = Path(__file__).parents[2]
TREES = ("client", "controller", "agent")
SEARCHES = {"search", "sub", "subn", "split", "findall", "finditer"}
CALLS = {"compile", "match", "fullmatch", *SEARCHES}

NOT_LINEAR = {
    (
        "holdfast._base.job_file.expand",
        "_REFERENCE",
    ): "searched up to the last bracket, so that each search finds its end",
    ("holdfast.cli.submission.requirements", "_COMMENT"): "of a line: what follows the # can't fail",
    ("holdfast.hang.evidence.frames", "_LIBRARY"): "a frame's file has 400 characters at most",
    ("holdfast.cli.submission.sbatch_lines", "_ANOTHER_SRUN"): "of a line's first 2,000 characters",
    ("holdfast.cli.submission.sbatch_lines", "_UNSET"): "of a line's first 2,000 characters",
    ("holdfast.cli.submission.sbatch_lines", "_LAUNCHED"): "of a line's first 2,000 characters",
    ("holdfast.cli.submission.sbatch_lines", "_ARITHMETIC"): "of a line's first 2,000 characters",
    ("holdfast.cli.submission.sbatch_lines", "_IN_ARITHMETIC"): "of a line's first 2,000 characters",
    ("holdfast.hang.pipeline.log_progress", "BYTES"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.log_progress", "_BAR"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.log_progress", "_CLOCKS"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.log_progress", "_GROUPED"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.log_progress", "_OPAQUE"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.log_progress", "_SIZES"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.step_count", "_COUNT"): "of a line's first 512 characters",
    ("holdfast.hang.pipeline.step_count", "_NUMBER_BEFORE"): "of a line's first 512 characters",
    ("holdfast_controller.core.lifecycle.exit_blame", "_LOST_PEER"): "60 characters at most after each beginning",
    ("holdfast_controller.core.model.exits", "_RAISED"): "only because the end of a line is read as nothing",
    ("holdfast_controller.core.lifecycle.failure_policy", "_FIGURES"): "each word's beginning looks ahead once",
    ("holdfast_controller.core.lifecycle.failure_policy", "_FATAL_FOR_GPU"): "of lines of 4,096 characters",
    ("holdfast_agent.core.launch.pip_config", "_CREDENTIALS"): "a search begins behind :// and ends at the next /",
    ("holdfast_agent.core.proc.stack_dumps", "_THREAD"): "of lines of 1,024 characters",
    ("holdfast_agent.core.proc.stack_dumps", "_FRAME"): "of lines of 1,024 characters",
    ("holdfast_agent.core.proc.stack_dumps", "_LIBRARY"): "of lines of 1,024 characters",
    ("holdfast_agent.core.proc.stack_dumps", "_TEMPLATE"): "of lines of 1,024 characters",
}
"""Patterns whose time may grow with the square of their text, each with what bounds it."""
MADE_AT_RUN_TIME = {
    "holdfast.bundles.ignore._pattern": "a user's own file, read by the user's own command",
    "holdfast.hang.pipeline.frame_waits": "rows of its table, which a test below looks at",
    "holdfast.hang.pipeline.step_pattern.compiled_earlier": "only what release 0.1 accepted, which refused slow ones",
    "holdfast.spec.models.scalars.Text.read": "patterns of the models, which a test below looks at",
    "holdfast_agent.shell.output.archive_copy._is_stream": "a worker's name, quoted",
}
"""Places where a pattern is put together from what is known only then, each with why that is harmless."""


@dataclass(frozen=True)
class Found:
    """One regular expression in the source."""

    place: str
    name: str
    pattern: str | bytes | None
    flags: int
    search: bool


def sources() -> Iterator[tuple[str, Path]]:
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            if "v1" not in path.parts and path.stem != "__main__":
                yield ".".join(path.relative_to(ROOT / tree).with_suffix("").parts).removesuffix(".__init__"), path


def searched() -> dict[str, set[str]]:
    """By a name, the methods that are called on it anywhere."""
    used: dict[str, set[str]] = defaultdict(set)
    for _, path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                held = node.value
                name = (
                    held.id if isinstance(held, ast.Name) else held.attr if isinstance(held, ast.Attribute) else ""
                )
                used[name].add(node.attr)
    return used


def value_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """What an expression is, by the constants of its module; None if that is known at run time only."""
    try:
        return eval(compile(ast.Expression(node), "", "eval"), names)
    except (NameError, AttributeError, TypeError, LookupError):
        return None


def calls(tree: ast.AST, within: str = "", held: str = "") -> Iterator[tuple[ast.Call, str, str]]:
    """Every call of ``re``, the function that it is in, and the name that it is assigned to."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from calls(child, f"{within}.{child.name}")
        elif isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
            yield from calls(child, within, child.targets[0].id)
        else:
            if isinstance(child, ast.Call) and _is_of_re(child.func):
                yield child, within, held
            yield from calls(child, within)


def _is_of_re(called: ast.expr) -> bool:
    while isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name) and called.id == "re"


@functools.cache
def found() -> list[Found]:
    used, all_of_them = searched(), []
    for name, path in sources():
        text = path.read_text()
        if not re.search(r"^ *import re$", text, re.MULTILINE):
            continue
        names = vars(importlib.import_module(name))
        for call, within, held in calls(ast.parse(text)):
            method = ast.unparse(call.func).partition(".")[2]
            if method not in CALLS:
                continue
            pattern = value_of(call.args[0], names)
            given = [each.value for each in call.keywords if each.arg == "flags"]
            given += call.args[1:] if method == "compile" else []
            search = method in SEARCHES or (method == "compile" and (not held or bool(used[held] & SEARCHES)))
            flags = int(value_of(given[0], names)) if given else 0
            all_of_them.append(Found(f"{name}{within}", held, pattern, flags, search))
    return all_of_them


def test_the_source_is_read() -> None:
    assert len(found()) > 100
    assert any(each.pattern == r"[A-Za-z0-9._@-]{1,63}" and not each.search for each in found())


def test_no_regular_expression_is_tried_in_exponentially_many_ways() -> None:
    bad = [each for each in found() if each.pattern is not None and growth_of(each) is Growth.EXPONENTIAL]
    assert not bad, "write it without a repeat in a repeat"


def test_one_that_is_tried_in_many_ways_is_listed_with_the_bound_of_its_text() -> None:
    known = [each for each in found() if each.pattern is not None]
    slow = {(each.place, each.name) for each in known if growth_of(each) is Growth.POLYNOMIAL}
    assert slow == set(NOT_LINEAR), "write it in linear time; else bound its text, and say here how"


def test_one_that_is_made_at_run_time_is_listed() -> None:
    assert {each.place for each in found() if each.pattern is None} == set(MADE_AT_RUN_TIME)


def test_patterns_of_the_models_and_of_the_table_of_frames_are_linear() -> None:
    of_models = {
        value_of(each.value, vars(importlib.import_module(name)))
        for name, path in sources()
        if name.startswith("holdfast.spec.models.")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == "pattern"
    }
    assert len(of_models) > 4
    of_frames = {pattern for _, *both in frame_waits._TABLE for pattern in both}
    for pattern in of_models | of_frames:
        assert growth(pattern, search=False) is Growth.LINEAR, pattern


@functools.cache
def growth_of(each: Found) -> Growth:
    assert each.pattern is not None
    return growth(each.pattern, each.flags, search=each.search)


@pytest.mark.parametrize(
    ("pattern", "search", "expected"),
    [
        (r"(a+)+b", False, Growth.EXPONENTIAL),
        (r"(\w+\s?)*$", False, Growth.EXPONENTIAL),
        (r"(?:x{0,9}y?){1,99}z", False, Growth.EXPONENTIAL),
        (r"(?:a|ab|b)*c", False, Growth.EXPONENTIAL),
        (r"\s+AND\s+", True, Growth.POLYNOMIAL),
        (r"\s+AND\s+", False, Growth.LINEAR),
        (r"\s*,?\s*;", False, Growth.POLYNOMIAL),
        (r"(.*)=(.*);", False, Growth.POLYNOMIAL),
        (r"[^a-z]+", True, Growth.LINEAR),
        (r"v\d+(?:\.\d+)*", False, Growth.LINEAR),
        (r'"(?:[^"\\]|\\.)*"', False, Growth.LINEAR),
    ],
)
def test_growth_is_told_from_the_pattern(pattern: str, search: bool, expected: Growth) -> None:
    assert growth(pattern, search=search) is expected
