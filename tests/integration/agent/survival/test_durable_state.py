"""What the agent must keep: whose state it is, the highest epoch, and what happens where a disk refuses it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller

from holdfast._base.failpoints import VARIABLE
from holdfast._session.reports import Exit, ExitReason, WorkerId
from holdfast.errors import StoreError
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.shell.shims.worker_files import EpochFile, WorkerFiles

KEY = WorkerId("job-1", "workerpool0-0")
LOST = Exit(0, 1, 0, ExitReason.LOST_SHIM_DIED, message="its shim died", end_time=5.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 KiB of room."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(mount)], check=True, timeout=180)
    yield mount
    subprocess.run(["umount", str(mount)], check=True, timeout=180)


def fill(disk: Path) -> None:
    with (disk / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


async def test_second_agent_on_the_same_state_is_refused_in_a_sentence(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    assert agent.process is not None
    command = [sys.executable, "-m", "holdfast_agent", "--config", str(agent.root / "agent.toml")]
    second = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=180)
    assert second.returncode == 1
    assert f"holdfast-agent: Another agent (pid {agent.process.pid}) runs on " in second.stderr
    assert "Traceback" not in second.stderr
    assert agent.process.poll() is None


async def test_epoch_that_cannot_be_synced_ends_the_agent_before_it_obeys(
    agent: Agent, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await controller.connected()
    agent.kill()
    points = tmp_path / "points"
    points.mkdir()
    (points / "agent.epoch.written").write_text("error")
    (agent.root / "state/epoch").unlink(missing_ok=True)
    monkeypatch.setenv(VARIABLE, str(points))
    agent.start()
    assert agent.process is not None
    assert await asyncio.to_thread(agent.process.wait, 60) == 1
    log = (agent.root / "agent.log").read_text()
    assert "holdfast-agent: The epoch 1 can't be kept in " in log
    assert "Traceback" not in log
    assert not (agent.root / "state/epoch").exists()
    agent.start()
    await controller.connected(times=3)


@pytest.mark.require("root", "mount")
def test_room_for_the_next_epoch_is_held_on_a_full_disk(small_disk: Path) -> None:
    epoch = EpochFile(small_disk / "epoch")
    epoch.write(40)
    fill(small_disk)
    epoch.write(41)
    assert epoch.read() == 41
    # What the one before held is the room of the next.
    epoch.write(42)
    assert EpochFile(small_disk / "epoch").read() == 42


@pytest.mark.require("root", "mount")
def test_an_acknowledgement_that_a_full_disk_takes_in_part_is_none_of_another_rank(small_disk: Path) -> None:
    facts = HostFacts(
        "h", str(small_disk / "logs"), str(small_disk / "scratch"), WorkerUser("u", "/", "/bin/sh"), 1
    )
    files = WorkerFiles(small_disk / "workers", facts)
    files.directory(KEY).mkdir(parents=True)
    (files.directory(KEY) / "attempts").write_text("acked 1 1\n" * 409)  # 6 bytes below a block's end
    fill(small_disk)
    with pytest.raises(OSError, match="No space left"):
        files.note_ack(KEY, 12, 15)
    assert files.acked(KEY) == {(1, 1)}
    (small_disk / "filler").unlink()
    files.note_ack(KEY, 12, 16)
    assert files.acked(KEY) == {(1, 1), (12, 16)}


@pytest.mark.require("root", "mount")
def test_ends_that_nobody_saw_take_the_room_that_the_dead_shim_had_held(small_disk: Path) -> None:
    facts = HostFacts(
        "h", str(small_disk / "logs"), str(small_disk / "scratch"), WorkerUser("u", "/", "/bin/sh"), 1
    )
    files = WorkerFiles(small_disk / "workers", facts)
    files.directory(KEY).mkdir(parents=True)
    reserve = files.directory(KEY) / "reserve"
    reserve.write_bytes(bytes(8192))
    fill(small_disk)
    files.record_exits(KEY, 1, (LOST,), (0,))
    found = files.journal(KEY, 1)
    assert found is not None and found.empty
    assert [exit_.reason for exit_ in found.exits] == [ExitReason.LOST_SHIM_DIED]
    assert not reserve.exists()
    fill(small_disk)
    with pytest.raises(StoreError, match="How ranks have ended can't be kept"):
        files.record_exits(KEY, 2, (LOST,), (0,))
