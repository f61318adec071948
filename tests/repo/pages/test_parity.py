"""The page that compares us with managed services names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/evidence/managed-services.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [
    line.strip().strip("|").split(" | ")
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| there |"))
]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE.read_text()))))
def test_every_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert (ROOT / file).exists(), f"{file} is gone"
    assert name.startswith("test_")
    assert name in names_in(ROOT / file), f"{file} has no {name} any more"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:60])
def test_every_row_says_what_shows_it_or_what_it_waits_for(row: list[str]) -> None:
    assert len(row) == 3
    shown = row[2].strip()
    assert NAMED.fullmatch(shown) or re.fullmatch(r"(later|no): .{8,}", shown), shown


def test_the_page_has_rows_of_each_kind() -> None:
    last = [row[2].strip() for row in ROWS]
    assert sum(shown.startswith("`") for shown in last) > 30
    assert any(shown.startswith("later: ") for shown in last)
    assert any(shown.startswith("no: ") for shown in last)
