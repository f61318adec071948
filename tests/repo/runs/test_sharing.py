"""Who takes which tests of a run: one process in five only what computes, and the others that last."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.whole_run import sharing
from tests.support.whole_run.sharing import Sharing

REAL = [f"tests/e2e/test_{name}.py" for name in "abcdef"]
PURE = [f"tests/unit/test_{name}.py" for name in "vwxyz"]
EACH = 3
"""Tests of a file: with so few left a process is sent another file."""


class Node:
    """A process of the run, as its scheduler sees it."""

    def __init__(self, number: int, tests: list[str]) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.shutting_down = False
        self.sent: list[int] = []
        self.files: list[str] = []
        """What it was sent, in order."""
        self._tests = tests

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices
        self.files += dict.fromkeys(self._tests[index].partition("::")[0] for index in indices)

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """A run of ``files`` by so many processes."""

    def __init__(self, files: list[str], processes: int) -> None:
        self.tests = [f"{file}::test_{number}" for file in files for number in range(EACH)]
        self.nodes: list[Any] = [Node(number, self.tests) for number in range(processes)]
        config: Any = SimpleNamespace(
            getvalue=lambda _: ["popen"] * processes, option=SimpleNamespace(loadscopereorder=False)
        )
        self.scheduler = Sharing(config)
        for node in self.nodes:
            self.scheduler.add_node(node)
        for node in self.nodes:
            self.scheduler.add_node_collection(node, self.tests)
        self.scheduler.schedule()

    def ends(self, node: Any) -> bool:
        """Whether a process had a test, which ends now."""
        if not node.sent:
            return False
        self.scheduler.mark_test_complete(node, node.sent.pop(0))
        return True

    def goes_on(self) -> None:
        """Each process ends one test after the other, until nothing is left."""
        while sum(self.ends(node) for node in self.nodes):
            pass


def test_each_test_is_run_once_and_one_process_in_five_takes_only_what_computes() -> None:
    run = Run([*REAL, *PURE], 5)
    run.goes_on()
    *others, last = run.nodes
    assert sorted(file for node in run.nodes for file in node.files) == sorted([*REAL, *PURE])
    assert last.files and set(last.files) <= set(PURE)
    for node in others:
        assert [file for file in node.files if file in PURE] == node.files[sum(f in REAL for f in node.files) :]
    assert not run.scheduler.has_pending
    assert run.scheduler.tests_finished
    assert all(node.shutting_down for node in run.nodes)


def test_it_ends_when_nothing_is_left_that_only_computes() -> None:
    run = Run([*REAL, PURE[0]], 5)
    *others, last = run.nodes
    while run.ends(last):
        pass
    assert last.files == PURE[:1]
    assert last.shutting_down and not any(node.shutting_down for node in others)
    run.goes_on()
    assert not run.scheduler.has_pending


def test_without_such_tests_it_has_nothing_to_do() -> None:
    run = Run(REAL, 5)
    assert run.nodes[4].shutting_down and not run.nodes[4].sent
    run.goes_on()
    assert sorted(file for node in run.nodes for file in node.files) == REAL


def test_what_computes_alone_is_everyone_s() -> None:
    run = Run(PURE, 2)
    run.goes_on()
    assert all(node.files for node in run.nodes)
    assert sorted(file for node in run.nodes for file in node.files) == PURE


def test_what_a_process_had_that_died_is_run_by_the_others() -> None:
    run = Run([*REAL, *PURE], 5)
    died = run.nodes.pop()
    assert run.scheduler.remove_node(died) == f"{died.files[0]}::test_0"
    run.goes_on()
    assert not run.scheduler.has_pending


@pytest.mark.parametrize("worker", ["gw0", "gw3", "gw4", "gw9"])
def test_it_is_less_urgent_however_often_it_is_told(monkeypatch: pytest.MonkeyPatch, worker: str) -> None:
    at = 0

    def getpriority(_kind: int, _of: int) -> int:
        return at

    def setpriority(_kind: int, _of: int, value: int) -> None:
        nonlocal at
        at = value

    monkeypatch.setattr(os, "getpriority", getpriority)
    monkeypatch.setattr(os, "setpriority", setpriority)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
    for _ in range(2):
        sharing.yield_to_others()
    assert at == (sharing.LESS_URGENT if worker in ("gw4", "gw9") else 0)
