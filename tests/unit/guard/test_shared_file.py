"""A file brings the tasks of a launch together, and no one else's file does."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from holdfast.errors import ConfigError, Unavailable
from holdfast.guard import addresses, meeting
from holdfast.guard.allocation import read
from holdfast.guard.meeting import Guest
from holdfast.guard.shared_file import SharedFile

SEED = b"s" * 32
FIRST = replace(read({}, "n1"), kind="shared", tasks=2, job="guard-1")


async def test_others_read_what_task_0_has_written(tmp_path: Path) -> None:
    file = SharedFile(tmp_path, "guard-1")

    wrote = await file.exchange(FIRST, SEED, 9)

    assert await file.exchange(replace(FIRST, task=1), b"x" * 32, 9) == wrote
    assert wrote[0] == SEED and addresses.own(wrote[1])
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    file.remove()
    assert os.listdir(tmp_path) == []


async def test_a_file_that_a_killed_launch_has_left_is_given_up_for_its_successors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SharedFile(tmp_path, "guard-1")
    file.write(b"o" * 32, ["10.0.0.9"])
    followed: list[bytes] = []

    async def join(_: object, where: list[str], seed: bytes, __: None, patience_s: float, *___: object) -> Guest:
        followed.append(seed)
        if seed != SEED:
            file.write(SEED, ["10.0.0.1"])
            await asyncio.sleep(patience_s)
        return cast("Guest", where)

    monkeypatch.setattr(meeting, "join", join)
    found = await file.join(replace(FIRST, task=1), 60.0, ())

    assert followed == [b"o" * 32, SEED]
    assert cast("list[str]", found) == ["10.0.0.1"]


async def test_a_folder_that_is_not_shared_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"Task 1 on n1 has not seen .*guard-1, which task 0 writes") as raised:
        await SharedFile(tmp_path, "guard-1").exchange(replace(FIRST, task=1), SEED, 0.3)
    assert "a folder that all hosts share" in raised.value.fix


@pytest.mark.parametrize("text", ["", "[]", "{", '{"seed": "00", "addresses": []}', '{"seed": 1}'])
def test_what_is_no_such_file_is_none(tmp_path: Path, text: str) -> None:
    file = SharedFile(tmp_path, "guard-1")
    file.path.write_text(text)
    file.path.chmod(0o600)

    assert file.read() is None


def test_a_file_that_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    file = SharedFile(tmp_path, "guard-1")
    file.write(SEED, ["10.0.0.1"])
    file.path.chmod(0o640)
    assert file.read() is None

    real = tmp_path / "elsewhere"
    file.path.chmod(0o600)
    file.path.rename(real)
    os.symlink(real, file.path)
    assert file.read() is None


def test_a_pipe_in_its_place_is_none_and_holds_no_one_up(tmp_path: Path) -> None:
    file = SharedFile(tmp_path, "guard-1")
    os.mkfifo(file.path, 0o600)

    assert file.read() is None


def test_what_cannot_be_replaced_is_named_and_nothing_secret_stays(tmp_path: Path) -> None:
    file = SharedFile(tmp_path, "guard-1")
    (file.path / "full").mkdir(parents=True)

    with pytest.raises(ConfigError, match=r"guard-1 can't be written, by which the tasks meet") as raised:
        file.write(SEED, ["10.0.0.1"])

    assert "a folder that only you can write to" in raised.value.fix
    assert os.listdir(tmp_path) == [file.path.name]


def test_what_can_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        SharedFile(tmp_path, "guard-1").write(SEED, ["10.0.0.1"])
    assert os.listdir(tmp_path) == []
