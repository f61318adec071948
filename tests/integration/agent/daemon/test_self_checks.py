"""The agent looks at its own host: disks that fill up, and what the doctor finds, reported to its controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller

from holdfast.v1 import agent_pb2, host_pb2

OFTEN = {"self_check": 1, "checks": {"disk_free_mb": 8}}


def newest(controller: Controller) -> agent_pb2.CheckReport | None:
    found = [m.check_report for m in controller.heard if m.WhichOneof("message") == "check_report"]
    return found[-1] if found else None


def failing(controller: Controller) -> dict[str, host_pb2.FailedCheck]:
    report = newest(controller)
    return {each.check: each for each in report.failed} if report is not None else {}


@pytest.fixture
async def small_state(tmp_path: Path) -> AsyncIterator[Path]:
    """16 MiB of disk for the agent's state, with 2,000 inodes."""
    state = tmp_path / "state"
    state.mkdir()
    options = "size=16m,nr_inodes=3000,mode=711"
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", options, "none", str(state)])
    yield state
    await anyio.run_process(["umount", "-l", str(state)])


@pytest.mark.require("root", "mount")
@pytest.mark.parametrize("settings", [OFTEN])
async def test_a_disk_that_fills_up_is_reported_and_that_it_has_space_again(
    small_state: Path, agent: Agent, controller: Controller
) -> None:
    await controller.until(lambda: newest(controller) is not None, "a report")
    assert not any(each.keeps_work_away for each in failing(controller).values())
    fill = small_state / "core.1234"
    fill.write_bytes(bytes(12 << 20))
    await controller.until(lambda: failing(controller).get("disk.state_dir", None), "a full disk")
    full = failing(controller)["disk.state_dir"]
    assert full.status == host_pb2.CHECK_STATUS_ERROR and full.keeps_work_away
    assert "MiB free of the 8 MiB that it must have" in full.saw and full.fix[0].startswith("du -xh")
    fill.unlink()
    gone = "disk.state_dir no longer keeps work away"
    await controller.until(lambda: not any(each.keeps_work_away for each in failing(controller).values()), gone)


@pytest.mark.require("root", "mount")
@pytest.mark.parametrize("settings", [OFTEN])
async def test_inodes_that_run_out_are_reported(small_state: Path, agent: Agent, controller: Controller) -> None:
    await controller.until(lambda: newest(controller) is not None, "a report")
    for number in range(2500):
        (small_state / f"taken-{number}").touch()
    await controller.until(lambda: "inodes left of 3000" in failing(controller).get("disk.state_dir", NOTHING).saw)


NOTHING = host_pb2.FailedCheck()


@pytest.mark.parametrize("settings", [{"self_check": 1}])
async def test_the_whole_doctor_is_run_and_its_errors_are_reported(agent: Agent, controller: Controller) -> None:
    (agent.root / "host.key").chmod(0o644)
    await controller.until(lambda: "certificates.key" in failing(controller), "the doctor's finding")
    report = newest(controller)
    assert report is not None and not report.partial
    found = failing(controller)["certificates.key"]
    assert "mode 0644" in found.saw and found.fix[0].startswith("chmod 0600 ") and not found.keeps_work_away
    (agent.root / "host.key").chmod(0o600)
    await controller.until(lambda: "certificates.key" not in failing(controller), "that it is well")


@pytest.mark.parametrize("settings", [{"self_check": 3600}])
async def test_every_session_begins_with_what_fails(agent: Agent, controller: Controller) -> None:
    await controller.until(lambda: newest(controller) is not None, "a report")
    report = newest(controller)
    assert report is not None and report.partial, "the whole doctor has not been run"
    controller.heard.clear()
    await controller.stop()
    await controller.start()
    await controller.until(lambda: newest(controller) == report, "the report again")
