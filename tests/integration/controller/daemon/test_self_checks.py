"""The controller checks itself: its disks, backups, the audit log, notifications that can't be delivered."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.controller.cluster import WITHIN_S, Certificates, Controller
from tests.integration.controller.daemon.notifications.test_notifications import serving
from tests.integration.controller.endpoint import endpoint
from tests.support.stubs import cluster_stub

from holdfast._daemon import log
from holdfast.v1 import cluster_pb2
from holdfast_controller.core import digest
from holdfast_controller.shell.backup.places import newest_backup
from holdfast_controller.shell.base.config import ChannelConfig, ControllerConfig
from holdfast_controller.shell.main import self_checks


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_checks, "QUICK_S", 0.2)
    monkeypatch.setattr(digest, "SETTLE_S", 0.3)
    monkeypatch.setattr(digest, "SPACING_S", 0.2)


async def attention(controller: Controller) -> list[str]:
    stub = cluster_stub(controller.channel("user/ann"))
    found = await stub.GetStatus(cluster_pb2.GetStatusRequest(), timeout=WITHIN_S)
    return [f"{each.subject} {each.message}" for each in found.attention]


async def until(controller: Controller, words: str, *, there: bool = True) -> str:
    """Wait until the status has a line with these words, or none."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            lines = [line for line in await attention(controller) if words in line]
            if bool(lines) is there:
                return lines[0] if lines else ""
            await asyncio.sleep(0.1)


@pytest.fixture
def small_state(config: ControllerConfig) -> Iterator[Path]:
    """64 MiB of disk for the controller's state."""
    config.state_dir.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "none", str(config.state_dir)], check=True)
    yield config.state_dir
    subprocess.run(["umount", "-l", str(config.state_dir)], check=True)


@pytest.mark.require("root", "mount")
async def test_a_disk_without_space_needs_attention_and_is_told_once(
    small_state: Path, config: ControllerConfig, certificates: Certificates
) -> None:
    async with endpoint() as hook:
        config = dataclasses.replace(
            config, notifications=(ChannelConfig("hook", hook.url, cluster_events=("ALL",)),)
        )
        for _ in range(2):
            async with serving(config, certificates) as controller:
                line = await until(controller, "disk.state_dir")
                assert line.startswith(f"controller disk.state_dir: {small_state} has ")
                assert "MiB free of the 256 MiB that it must have" in line
                await hook.until(lambda h: h.got)
    told = [item["event"] for body in hook.got for item in body["items"]]
    assert told == ["CHECK_FAILED"]


async def test_a_store_whose_commits_are_slow_needs_attention(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_checks, "SLOW_S", 0.0)
    monkeypatch.setattr(self_checks, "QUIET_ROUNDS", 1)
    async with controller.agent() as agent:
        await agent.until(lambda a: a.said)  # a hello is committed
        line = await until(controller, "store.slow")
        assert "holdfast.db took" in line
        assert "s or longer within the last minute" in line


async def test_a_whole_controller_needs_no_attention(controller: Controller) -> None:
    await asyncio.sleep(1.0)
    assert await attention(controller) == []


async def test_a_backup_that_is_too_old_needs_attention(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_checks, "QUIET_ROUNDS", 1)
    config = dataclasses.replace(config, backup_within=3600.0)
    async with serving(config, certificates) as controller:
        await until(controller, "backup.age: no backup was ever made")
        marker = config.state_dir / "last_backup"
        marker.touch()
        await until(controller, "backup.age", there=False)
        os.utime(marker, (time.time() - 86_400,) * 2)
        await until(controller, "backup.age: the newest backup is 24 h old")
        assert newest_backup(config.state_dir) < time.time() - 86_000


async def test_a_broken_chain_of_the_audit_log_needs_attention(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(config, certificates) as controller:
        for _ in range(3):
            await cordon_nothing(controller)
        trail = config.state_dir / "audit-admins.jsonl"
        async with asyncio.timeout(WITHIN_S):
            while not trail.exists() or trail.read_bytes().count(b"Cordon") < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    assert await self_checks._audit(config) == []
    lines = trail.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    trail.write_bytes(b"".join([lines[0], *lines[2:]]))
    monkeypatch.setattr(self_checks, "VERIFY_FIRST_S", 0.0)
    async with serving(config, certificates) as controller:
        await until(controller, "controller audit.chain: ")


async def cordon_nothing(controller: Controller) -> None:
    from tests.support.stubs import host_stub

    from holdfast.v1 import host_pb2

    stub: Any = host_stub(controller.channel("user/ann"))
    with pytest.raises(Exception, match="no host"):
        await stub.Cordon(host_pb2.CordonRequest(name="host-7"), timeout=WITHIN_S)


async def test_notifications_that_were_given_up_need_attention(
    config: ControllerConfig, certificates: Certificates
) -> None:
    channel = ChannelConfig("dead", "http://127.0.0.1:9/hook", cluster_events=("ALL",))
    config = dataclasses.replace(config, notifications=(channel,), notification_retry_for=0.1)
    async with serving(config, certificates) as controller, controller.agent("host-0", agent_version="0"):
        async with controller.agent("host-1") as agent:
            await agent.until(lambda a: a.said)
        from holdfast.v1 import agent_pb2

        async with controller.agent("host-1") as agent:
            await agent.call.write(agent_pb2.SessionRequest(going_down=agent_pb2.GoingDown()))
            await until(controller, "notifications.receivers: 1 notification was given up, since dead")


async def test_modules_where_the_controller_was_started_are_none_of_its_checks(
    config: ControllerConfig, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with serving(config, certificates) as controller:
        await cordon_nothing(controller)
        async with asyncio.timeout(WITHIN_S):
            while not (config.state_dir / "audit-admins.jsonl").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    planted = tmp_path / "where"
    (planted / "holdfast").mkdir(parents=True)
    (planted / "holdfast/__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (planted / "json.py").write_text("raise SystemExit('planted')\n")
    monkeypatch.chdir(planted)
    said: list[str] = []
    monkeypatch.setattr(log, "warning", lambda name, **more: said.append(f"{name} {more}"))
    assert await self_checks._audit(config) == []
    assert said == [] and not (tmp_path / "ran").exists()


async def test_a_machine_without_a_process_to_spare_is_noted_and_ends_nothing(
    config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(*_: object, **__: object) -> asyncio.subprocess.Process:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    noted: list[str] = []
    monkeypatch.setattr(asyncio, "create_subprocess_exec", none_left)
    monkeypatch.setattr(log, "warning", lambda event, **fields: noted.append(f"{event} {fields['error']}"))

    assert await self_checks._audit(config) == []
    assert noted and "Resource temporarily unavailable" in noted[0]
