"""The page on security has a row for each rule, and names tests that exist: whole files, or one test of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/evidence/security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
LIST = """
mutual TLS | unknown callers | pose as the controller | join tokens | verified by its hash | certificates last a day
a removed user or host | the caller is taken from the certificate | on a unix socket | acts only as itself
own jobs | a terminal is typed into | a call without a rule | packaged code | on record | keys and settings | secrets
root works by descriptor | replace root's | workers start with nothing | a worker reaches neither
an installation ends | the environment of the next
paths that users name | a container | protobuf | hostile job file or bundle | starve the others
fill the controller | web pages | only holds a connection | fork bomb
an image brings | misleads what reads | store that is damaged | without a certificate do not | runs out of something
a wall clock | a line without end
names of jobs | what a worker writes is read | open to others' writes | a signal hits no unrelated process
"""
MISTAKES = """
mistyped token | a clock | certificate for another host | another user's account | as root
started twice | full /var | misspelt
"""


def rows(heading: str) -> list[list[str]]:
    """The table below a heading, without its head."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")][1:]


def words(text: str) -> list[str]:
    return [word.strip() for line in text.strip().splitlines() for word in line.split(" | ")]


@pytest.mark.parametrize(("heading", "columns", "known"), [("Rules", 3, LIST), ("Mistakes", 2, MISTAKES)])
def test_every_rule_has_a_row_and_each_row_its_tests(heading: str, columns: int, known: str) -> None:
    found = rows(heading)
    assert [row for row in found if len(row) != columns or not NAMED.search(row[-1])] == []
    missing = [word for word in words(known) if not any(word in row[0] for row in found)]
    assert missing == [], "a rule without a row"


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert (ROOT / file).exists(), f"{file} is gone"
    tree = ast.parse((ROOT / file).read_text())
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert not name or name in names, f"{file} has no {name} any more"


def test_every_file_of_abuses_is_on_the_page() -> None:
    named = {file for file, _ in NAMED.findall(PAGE)}
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests/security").rglob("test_*.py")}
    assert files - named == set()
