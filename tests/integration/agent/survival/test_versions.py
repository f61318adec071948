"""Agents, shims and controllers of different releases: neighbours work on, the rest leave the workers alone."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast import __version__
from holdfast._session import protocol
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.shims.shim_files import start_ticks
from holdfast_agent.shim import shim


def logged(agent: Agent, event: str) -> list[dict[str, Any]]:
    """What the agent has logged of that kind."""
    lines = [line for line in (agent.root / "agent.log").read_text().splitlines() if line.startswith("{")]
    return [line for line in map(json.loads, lines) if line["event"] == event]


def born(pids: list[int]) -> dict[int, int | None]:
    """When each process started; None for one that is gone."""
    return {pid: start_ticks(pid) for pid in pids}


async def test_hello_says_what_the_agent_is(agent: Agent, controller: Controller) -> None:
    hello = await controller.connected()
    assert hello.agent_version == __version__
    assert (hello.protocol, hello.shim_protocol) == (protocol.PROTOCOL, shim.VERSION)


@pytest.mark.parametrize("step", ["+1", "-1"])
async def test_upgrade_or_downgrade_of_the_agent_leaves_its_workers_running(
    agent: Agent, controller: Controller, step: str
) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=2)
    before = await controller.state("RUNNING")
    processes = born([before.shim_pid, *(rank.pid for rank in before.ranks)])
    assert None not in processes.values()
    assert agent.kill(signal.SIGTERM) == 0
    agent.release = ("9.9.9", step, step)
    controller.protocol = protocol.PROTOCOL
    agent.start()
    hello = await controller.connected(times=2)
    assert hello.agent_version == "9.9.9"
    assert hello.protocol == protocol.PROTOCOL + int(step)
    assert [list(worker.ranks) for worker in hello.workers] == [list(before.ranks)]
    assert born(list(processes)) == processes
    # Its shim is of the release before or after, and obeys all the same.
    os.kill(before.ranks[1].pid, signal.SIGSEGV)
    assert (await controller.exit(1)).exit.signal == signal.SIGSEGV
    await launch(controller, SLEEP, processes=2, generation=2)
    after = await controller.state("RUNNING", generation=2)
    assert after.shim_pid == before.shim_pid
    await controller.assign(assignment("STOP", generation=2, grace_s=1.0))
    await controller.state("EMPTY", generation=2)


async def test_shim_of_a_release_too_far_away_is_left_alone_until_an_agent_comes_that_knows_it(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    before = await controller.state("RUNNING")
    processes = born([before.shim_pid, before.ranks[0].pid])
    agent.kill(signal.SIGTERM)
    agent.release = ("9.9.9", "+0", "+2")
    agent.start()
    await controller.connected(times=2)
    await agent.until(lambda: bool(logged(agent, "shim.wrong_version")), "a word of the shim's version")
    assert logged(agent, "shim.wrong_version")[0]["error"] == (
        f"its shim speaks protocol {shim.VERSION}, this agent {shim.VERSION + 2}: an agent between them is needed"
    )
    await controller.assign(assignment("STOP", grace_s=1.0))
    await controller.heartbeats(2)
    assert born(list(processes)) == processes
    agent.kill(signal.SIGTERM)
    agent.release = None
    agent.start()
    await controller.state("EMPTY")
    assert set(born(list(processes)).values()) <= {None, processes[before.shim_pid]}


async def test_controller_too_new_is_not_obeyed_and_the_workers_run_on(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    await controller.stop()
    controller.protocol = protocol.PROTOCOL + 2
    controller.assign_later(assignment("STOP", grace_s=1.0))
    controller.heard.clear()
    await controller.start()
    await agent.until(lambda: len(logged(agent, "session.refused")) >= 2, "two refusals")
    problem = logged(agent, "session.refused")[0]["error"]
    assert problem.endswith(f"Upgrade the agent of {HOST}; what runs there runs on.")
    assert controller.heard == []
    assert None not in born([running.shim_pid, running.ranks[0].pid]).values()
    controller.protocol = protocol.PROTOCOL + 1
    await controller.state("EMPTY")


async def test_controller_that_says_no_number_is_obeyed(agent: Agent, controller: Controller) -> None:
    assert protocol.agree(protocol.PROTOCOL, protocol.UNSAID)
    await controller.connected()
    await launch(controller, SLEEP)
    assert (await controller.state("RUNNING")).state == agent_pb2.REPORTED_STATE_RUNNING
