"""A real agent that its service manager stops: to be restarted, or because the host goes down."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast._session.reports import Exit
from holdfast.v1 import job_pb2
from holdfast_agent.shell.shims import shim_files
from holdfast_agent.shell.shims.shim_files import start_ticks

pytestmark = pytest.mark.anyio


@pytest.fixture
def manager(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The service manager's end of the socket by which the agent tells how it is."""
    path = tmp_path_factory.mktemp("n") / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield sock


@pytest.fixture
def settings(manager: socket.socket) -> dict[str, Any]:
    """It is not the systemd of this machine, if there is one, that supervises."""
    return {"scopes": False}


@pytest.fixture
def host_is(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that says what systemctl answers; "running" at first."""
    folder = tmp_path_factory.mktemp("bin")
    state = folder / "state"
    state.write_text("running\n")
    tool = folder / "systemctl"
    tool.write_text(f"#!/bin/sh\nexec cat {state}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return state


def goes_down(host_is: Path) -> None:
    host_is.write_text("stopping\n")


async def ended(agent: Agent) -> int:
    assert agent.process is not None
    agent.process.send_signal(signal.SIGTERM)
    code = await anyio.to_thread.run_sync(agent.process.wait, 60)
    agent.process = None
    return code


async def test_the_service_manager_hears_that_the_agent_is_ready(
    host_is: Path, manager: socket.socket, agent: Agent
) -> None:
    assert await anyio.to_thread.run_sync(manager.recv, 4096) == b"READY=1"


async def test_a_restart_leaves_workers_alone(host_is: Path, agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    assert await ended(agent) == 0
    assert start_ticks(running.ranks[0].pid) is not None
    assert not any(message.HasField("going_down") for message in controller.heard)


async def test_a_host_that_goes_down_says_so_and_its_workers_ends_are_acknowledged(
    host_is: Path, agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    goes_down(host_is)
    assert await ended(agent) == 0
    kinds = [message.WhichOneof("message") for message in controller.heard]
    assert kinds.index("going_down") < kinds.index("exit_report")
    (exit_,) = controller.exits()
    assert exit_.exit.reason == job_pb2.EXIT_REASON_STOPPED
    assert start_ticks(running.ranks[0].pid) is None
    assert '"unacknowledged": 0' in (agent.root / "agent.log").read_text()
    # Shims with nothing to do would be waited for at the shutdown.
    await agent.until(lambda: start_ticks(running.shim_pid) is None, "the shim ends")


SAVES = [
    sys.executable,
    "-c",
    "import signal, sys, time\n"
    "def save(*_):\n    time.sleep(1)\n    sys.exit(42)\n"
    "signal.signal(signal.SIGUSR1, save)\nprint('up', flush=True)\nwhile True: time.sleep(0.05)",
]


@pytest.mark.parametrize("within_reach", [True, False])
async def test_ranks_that_are_to_be_warned_of_it_have_their_time_to_save(
    host_is: Path, agent: Agent, controller: Controller, within_reach: bool
) -> None:
    """Their own exit is on record, though no controller is there to say that they may have the time."""
    await controller.connected()
    await launch(controller, SAVES, notice_signal=int(signal.SIGUSR1), notice_s=60.0)
    await controller.state("RUNNING")
    (out,) = agent.root.rglob("workerpool0-0.r0.out")
    await agent.until(lambda: "up" in out.read_text(), "the rank to be ready")
    if not within_reach:
        await controller.stop()
    goes_down(host_is)
    assert await ended(agent) == 0
    (journal,) = agent.workers.rglob("g1.journal")
    (exit_,) = [record for record in shim_files.read_journal(journal) if isinstance(record, Exit)]
    assert (exit_.exit_code, exit_.signal) == (42, None)
