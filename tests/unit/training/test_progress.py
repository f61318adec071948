"""What a training loop says of itself reaches the agent, costs little, and never harms it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.training import progress_calls, progress_file


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(progress_calls, "_file", None)
    monkeypatch.setattr(progress_calls, "_opened_by", 0)
    monkeypatch.setenv(progress_file.DIRECTORY, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    return tmp_path


def test_a_reported_step_can_be_read(fresh: Path) -> None:
    progress_calls.progress(step=41)
    progress_calls.progress(step=42)
    said = progress_file.read(progress_file.path_for(str(fresh), "3"))
    assert said is not None
    assert (said.reports, said.step, said.pid, said.idle_reason) == (2, 42, os.getpid(), None)
    assert said.at > 0


def test_a_declared_pause_shows_its_reason_until_the_outermost_block_ends(fresh: Path) -> None:
    path = progress_file.path_for(str(fresh), "3")
    with progress_calls.idle("waits for the data set"):
        with progress_calls.idle("é" * 300):
            inner = progress_file.read(path)
        outer = progress_file.read(path)
    after = progress_file.read(path)
    assert inner is not None and inner.idle_reason is not None and inner.idle_reason.startswith("éé")
    assert outer is not None and outer.idle_reason is not None
    assert after is not None and after.idle_reason is None


def test_a_pause_ends_with_its_block_also_by_an_exception(fresh: Path) -> None:
    with pytest.raises(KeyError), progress_calls.idle("x"):
        raise KeyError
    said = progress_file.read(progress_file.path_for(str(fresh), "3"))
    assert said is not None and said.idle_reason is None


def test_outside_holdfast_nothing_happens(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress_file.DIRECTORY)
    progress_calls.progress(step=1)
    with progress_calls.idle("x"):
        pass
    assert list(fresh.iterdir()) == []


def test_a_missing_folder_does_not_harm_the_training(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress_file.DIRECTORY, str(fresh / "nowhere"))
    progress_calls.progress(step=1)


def test_a_forked_helper_does_not_speak_for_its_rank(fresh: Path) -> None:
    progress_calls.progress(step=7)
    child = os.fork()
    if child == 0:
        progress_calls.progress(step=99)
        os._exit(0)
    os.waitpid(child, 0)
    said = progress_file.read(progress_file.path_for(str(fresh), "3"))
    assert said is not None and said.step == 7


@pytest.mark.parametrize("content", [b"", b"HFPROG1\n", b"x" * 256])
def test_a_file_that_is_not_written_yet_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r0.progress"
    path.write_bytes(content)
    assert progress_file.read(str(path)) is None
    assert progress_file.read(str(tmp_path / "none")) is None


def test_importing_holdfast_brings_neither_grpc_nor_protobuf_nor_pydantic() -> None:
    code = (
        "import holdfast, sys; print(sorted({'grpc', 'google.protobuf', 'pydantic', 'click'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
