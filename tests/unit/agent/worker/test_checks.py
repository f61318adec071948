"""What is looked for before a worker is promised, also where root may not look."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast_agent.shell.prepare import checks


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of another machine's, of which root sees nothing."""
    hidden, stat = tmp_path / "home", os.stat

    def squashed(path: Any, *arguments: Any, **more: Any) -> os.stat_result:
        if Path(os.fspath(path)).is_relative_to(hidden):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *arguments, **more)

    monkeypatch.setattr("holdfast_agent.shell.prepare.checks.os.stat", squashed)
    return hidden


def test_what_only_the_user_may_see_is_not_called_missing(home: Path, tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        checks._is_on(f"{tmp_path}:{home}", "/", "train")
    with pytest.raises(PermissionError):
        checks._is_program(home / "run.sh")
    assert checks._is_on(f"{home}:/bin", "/", "sh"), "it is somewhere else"


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    assert not checks._is_on(f"{tmp_path}:{tmp_path}/none", "/", "train")
    assert checks._status(f"{tmp_path}/a\0b") is None
    (tmp_path / "train").write_text("")
    assert not checks._is_program(tmp_path / "train")
