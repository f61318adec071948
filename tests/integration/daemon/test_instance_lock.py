"""One daemon for each state directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast._daemon.instance_lock import only_one
from holdfast.errors import StoreError, WrongState

HOLD = """
import sys, pathlib
from holdfast._daemon.instance_lock import only_one
with only_one(pathlib.Path(sys.argv[1]), "agent"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_second_daemon_is_told_whose_the_directory_is(tmp_path: Path) -> None:
    fix = "Stop it first"
    with (
        only_one(tmp_path, "agent"),
        pytest.raises(WrongState, match=rf"Another agent \(pid {os.getpid()}\) runs on .*{fix}"),
        only_one(tmp_path, "agent", wait_s=0.1),
    ):
        pass
    with only_one(tmp_path, "agent", wait_s=0):
        pass


def test_another_kind_of_daemon_is_no_rival(tmp_path: Path) -> None:
    with only_one(tmp_path, "agent"), only_one(tmp_path, "controller", wait_s=0):
        pass


def test_killed_holder_leaves_nothing_to_clear(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(WrongState, match=str(holder.pid)), only_one(tmp_path, "agent", wait_s=0):
            pass
        holder.kill()
        holder.wait(60)
    with only_one(tmp_path, "agent", wait_s=0):
        pass


def test_directory_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"), only_one(tmp_path / "file", "agent"):
        pass
