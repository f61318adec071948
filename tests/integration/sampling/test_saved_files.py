"""What counts as growth of a saved file: looked at in this process' own descriptors, pass by pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

import pytest

from holdfast_agent.shell.sampling import saved_files
from holdfast_agent.shell.sampling.guarded_reader import Turn
from holdfast_agent.shell.sampling.processes import Member
from holdfast_agent.shell.sampling.saved_files import SavedFileWatch


class Bench:
    """A watch over this process, and files that it has open."""

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self.folder, self.files = folder, files
        self.watch = SavedFileWatch("")
        self.member = SimpleNamespace(pid=os.getpid(), stuck=False, written=0)
        self.now_s = 0.0

    def call(self, _: object, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def look(self) -> float | None:
        """One pass, ten seconds later; when the checkpoint was last seen to grow."""
        self.now_s += 10
        self.member.written += 1
        self.watch.look(cast(Turn, self), [cast(Member, self.member)], self.now_s)
        return self.watch.sample.checkpoint_grew_s

    def opens(self, name: str = "model.pt", mode: str = "wb") -> BinaryIO:
        path = self.folder / name
        return cast(BinaryIO, self.files.enter_context(path.open(mode, buffering=0)))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as files:
        yield Bench(tmp_path, files)


def test_first_portion_of_a_file_that_turns_up_between_two_looks_counts(bench: Bench) -> None:
    assert bench.look() is None
    bench.opens().write(b"x" * 100)
    assert bench.look() == 20
    assert bench.watch.sample.bytes == 100
    assert bench.look() == 20


def test_file_that_is_there_at_the_first_look_has_not_grown(bench: Bench) -> None:
    file = bench.opens()
    file.write(b"x")
    assert bench.look() is None
    file.write(b"y")
    assert bench.look() == 20


def test_file_that_turns_up_empty_counts_with_its_first_portion(bench: Bench) -> None:
    bench.look()
    file = bench.opens()
    assert bench.look() is None
    file.write(b"x")
    assert bench.look() == 30


def test_file_that_is_only_opened_again_has_not_grown(bench: Bench) -> None:
    file = bench.opens()
    file.write(b"x")
    bench.look()
    file.close()
    assert bench.look() is None
    again = bench.opens(mode="ab")
    assert bench.look() is None
    again.write(b"y")
    assert bench.look() == 40
    again.close()
    bench.look()
    bench.opens(mode="ab").write(b"z")
    assert bench.look() == 60


def test_first_portion_in_a_process_that_started_since_counts_and_at_the_first_look_not(bench: Bench) -> None:
    bench.opens().write(b"x")
    here = [cast(Member, bench.member)]
    bench.watch.look(cast(Turn, bench), [], 5.0)
    bench.watch.look(cast(Turn, bench), here, 10.0)
    assert bench.watch.sample.checkpoint_grew_s == 10


def test_files_that_are_looked_at_in_turns_do_not_count_when_they_turn_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of them were there before can't be told."""
    monkeypatch.setattr(saved_files, "DESCRIPTORS_MOST", 2)
    for number in range(20):
        bench.opens(f"model-{number}.pt").write(b"x")
    assert [bench.look() for _ in range(30)] == [None] * 30


def test_what_is_remembered_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_files, "REMEMBERED_MOST", 3)
    for number in range(10):
        with bench.opens(f"model-{number}.pt") as file:
            file.write(b"x")
            bench.look()
    assert len(bench.watch._known) <= 3


def test_a_path_that_is_not_utf_8_is_told_as_text(bench: Bench) -> None:
    os.mkdir(os.path.join(os.fsencode(bench.folder), b"mod\xe8le"))
    bench.look()
    file = bench.opens(os.fsdecode(b"mod\xe8le/model.pt"))
    file.write(b"x")
    file.flush()
    assert bench.look() is not None
    assert bench.watch.sample.path.endswith("/mod\ufffdle/model.pt")
