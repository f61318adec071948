"""A short portion of each target, the same inputs every time; ``make fuzz FOR=30m`` goes on from there."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz import pure, server
from tests.fuzz.engine import Growth, Held, Stall, Target, bound_memory, edited, run

EXAMPLES = 40
NAMES = [target.name for target in pure.targets(Path("/nonexistent"))]
HTTP = ("HTTP requests", "HTTP addresses", "HTTP bodies")


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    before = bound_memory()
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize("name", NAMES)
def test_what_no_one_thought_of_is_answered_or_refused_soon(name: str, tmp_path: Path) -> None:
    [target] = [each for each in pure.targets(tmp_path) if each.name == name]
    try:
        run(target, EXAMPLES, 0)
    finally:
        target.close()
    assert target.inputs > EXAMPLES // 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Served]:
    with server.controller(tmp_path_factory.mktemp("controller")) as found:
        yield found


@pytest.mark.parametrize("name", HTTP)
def test_no_request_over_http_fails_the_controller(name: str, served: server.Served) -> None:
    [target] = [each for each in served.targets() if each.name == name]
    run(target, EXAMPLES, 0)
    assert target.inputs > EXAMPLES // 2


# The fuzzer finds what it is for


def _spin(data: bytes) -> None:
    until = time.thread_time() + (0.03 if len(data) > 100 else 0)
    while time.thread_time() < until:
        pass


def test_a_crash_is_found_and_refusals_are_not() -> None:
    run(Target("refuses", lambda data: int(data), (b"1",), 100, (ValueError,)), 50, 0)
    with pytest.raises(ValueError):
        run(Target("crashes", lambda data: int(data), (b"1",), 100), 50, 0)


def test_a_stall_is_found() -> None:
    with pytest.raises(Stall):
        run(Target("stalls", _spin, (b"a" * 90,), 1000, stall_s=0.01), 50, 0)


def test_growth_is_found() -> None:
    before = Held.now()
    with pytest.raises(Growth):
        Held(before.resident_bytes + (1 << 30), before.descriptors).check(before)
    with pytest.raises(Growth):
        Held(before.resident_bytes, before.descriptors + 10).check(before)
    Held.now().check(before)


def test_inputs_reach_their_bound_and_no_further() -> None:
    assert len(edited(b"ab", [("repeat", 1, 20, b"xyz")], 1000)) in range(990, 1001)
    assert edited(b"abc", [("insert", 0, 0, b"x"), ("cut", 1 << 15, 0, b"")], 1000) == b"xa"


def test_a_reader_that_asks_for_more_memory_than_its_bound_is_found() -> None:
    greedy = Target("greedy", lambda data: bytearray(len(data) << 30), (b"a" * 16,), 16)
    with pytest.raises(MemoryError):
        run(greedy, 5, 0)
