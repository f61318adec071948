"""A copy of a rank's output by another process, as by ``tee``, is found without a look at what may hang."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast_agent.shim import last_lines


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def copies(held: ExitStack, path: Path) -> int:
    """The pid of a process that reads a pipe and writes to the file."""
    with path.open("ab") as out:
        process = held.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out))
    return process.pid


def test_who_copies_a_pipe_into_a_file_of_the_rank_is_found(tmp_path: Path, held: ExitStack) -> None:
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "workerpool0-0.r0.out"
    copier = copies(held, out)
    same_name = copies(held, tmp_path / "elsewhere" / out.name)
    assert last_lines.is_copied([os.fsencode(out)], [same_name, copier])
    assert not last_lines.is_copied([os.fsencode(out)], [same_name])


def test_a_file_of_another_name_is_not_looked_at(
    tmp_path: Path, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "workerpool0-0.r0.out"
    out.touch()
    copier = copies(held, tmp_path / "log")
    looked: list[object] = []
    stat = os.stat

    def noted(path: Any, **more: Any) -> os.stat_result:
        looked.append(path)
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", noted)
    assert not last_lines.is_copied([os.fsencode(out)], [copier])
    assert looked == [os.fsencode(out)]
