"""The page on reliability has a row for every fault and names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/evidence/reliability.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FAULTS = """
controller dies | agent dies | shim dies | worker killed | worker out of memory | daemonised child, zombie
process in D state | power loss | host lost | host that its peers reach and the controller does not
partition, each direction alone | slow, stalling, flapping, half-closed link
link without a server | disk full for output | disk full for the agent's state
disk full for the controller | disk stands still for the controller | store set back to an older copy that is whole
disk turns read-only | no file descriptors | no processes
no inodes for the agent's state | no memory for the agent (`ulimit -v`) | fork bomb
clock jumps by a day
database locked | database damaged | write-ahead log of the database cut, removed or another store's
no inodes on the controller's disk | clock set forward by years
database of an older version | database of a newer version
database failed over | old leader wakes | controller stopped, or held by its own code, for many leases
call repeated or reordered | agent, controller or shim of another version
flood of output, a line of a gigabyte | output that is not text | arguments, environment, messages beyond bounds
unknown caller, wrong certificate, another's name | hostile environment of a worker
secrets, with every process killed in between | workers as root
a job that asks for another user's account | a worker that attacks another user's work, or root
`LD_PRELOAD`, `BASH_ENV`, `PYTHONPATH` of a user
"""


def rows(heading: str) -> list[list[str]]:
    """The table below a heading."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    assert all(len(line) == 3 for line in lines), "a row has three columns"
    return lines[1:]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_every_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert (ROOT / file).exists(), f"{file} is gone"
    assert name.startswith("test_")
    assert name in names_in(ROOT / file), f"{file} has no {name} any more"


def test_every_fault_has_a_row() -> None:
    known = [fault.strip() for line in FAULTS.strip().splitlines() for fault in line.split(" | ")]
    assert [row[0] for row in rows("Faults")] == known


@pytest.mark.parametrize("row", rows("Faults"), ids=lambda row: row[0])
def test_every_fault_is_shown_or_says_why_not(row: list[str]) -> None:
    assert NAMED.search(row[2]) or re.fullmatch(r"no: .{20,}", row[2])


@pytest.mark.parametrize("row", rows("Promises"), ids=lambda row: row[0])
def test_every_promise_names_a_test(row: list[str]) -> None:
    assert NAMED.search(row[2])


def test_there_are_all_the_promises() -> None:
    assert len(rows("Promises")) == 18


def test_every_real_fault_that_is_tested_is_on_the_page() -> None:
    named = set(NAMED.findall(PAGE))
    for path in sorted((ROOT / "tests/faults").glob("test_*.py")):
        if path.name == "test_points.py":
            continue  # breaks nothing: it holds the list of failpoints to the code
        file = str(path.relative_to(ROOT))
        tests = {name for name in names_in(path) if name.startswith("test_")}
        assert {name for where, name in named if where == file} == tests, file
