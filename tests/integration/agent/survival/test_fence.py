"""Work that ends by itself when the controller is not heard: real agent and shim, shortened terms."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import PYTHON, SLEEP, launch

from holdfast.v1 import agent_pb2, job_pb2

TERM_S = 2.0
WARNED = [
    PYTHON,
    "-c",
    "import signal, time; signal.signal(10, lambda *_: print('warned', flush=True)); print('up', flush=True)\n"
    "for _ in range(12000): time.sleep(0.05)",
]


@pytest.fixture
def controller(controller: Controller) -> Controller:
    """One that answers each heartbeat, every half second."""
    controller.acks_heartbeats = controller.answers = True
    return controller


def silence(controller: Controller) -> None:
    """It hears, and says nothing more."""
    controller.answers = controller.acknowledge = False


async def running(agent: Agent, controller: Controller, fence_s: float = TERM_S) -> agent_pb2.WorkerReport:
    await controller.connected()
    await launch(controller, SLEEP, fence_s=fence_s)
    return await controller.state("RUNNING")


async def test_work_runs_on_while_the_controller_answers_and_ends_when_it_does_not(
    agent: Agent, controller: Controller
) -> None:
    await running(agent, controller)
    began = time.monotonic()
    await controller.heartbeats(8)
    assert time.monotonic() - began > 1.5 * TERM_S
    assert not controller.exits()
    silence(controller)
    report = await controller.exit()
    assert report.exit.reason == job_pb2.EXIT_REASON_STOPPED
    assert report.exit.message.startswith("stopped by itself: no word from the controller for 2 s")
    await controller.state("EMPTY")


async def test_without_a_fence_silence_changes_nothing(agent: Agent, controller: Controller) -> None:
    await running(agent, controller, 0.0)
    silence(controller)
    await controller.heartbeats(8)
    assert not controller.exits()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_work_ends_though_the_agent_is_dead_or_stopped(
    agent: Agent, controller: Controller, number: signal.Signals
) -> None:
    report = await running(agent, controller)
    assert agent.process is not None
    if number is signal.SIGKILL:
        agent.kill()
    else:
        agent.process.send_signal(number)
    pid = report.ranks[0].pid
    began = time.monotonic()
    await agent.until(lambda: not _lives(pid), "the end of the rank")
    await agent.journalled("empty", 1)
    assert time.monotonic() - began < 4 * TERM_S
    if agent.process is None:
        agent.start()
    else:
        agent.process.send_signal(signal.SIGCONT)
    end = await controller.exit()
    assert "no word from the controller for 2 s" in end.exit.message
    assert len(controller.exits()) == 1


async def test_an_agent_that_restarts_in_time_keeps_the_work_alive(agent: Agent, controller: Controller) -> None:
    await running(agent, controller, 6.0)
    agent.kill()
    agent.start()
    await controller.connected(2)
    began = time.monotonic()
    while time.monotonic() - began < 9.0:
        await controller.heartbeats(4)
    assert not controller.exits()


async def test_the_warning_signal_comes_once_though_the_agent_restarts(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    prepared = await launch(controller, WARNED)
    await agent.output("job-1/g1/workerpool0-0.r0.out", "up")
    await controller.assign(_run(prepared))
    await agent.output("job-1/g1/workerpool0-0.r0.out", "warned")
    agent.kill()
    agent.start()
    await controller.connected(2)
    await controller.assign(_run(prepared))
    await controller.heartbeats(3)
    output = agent.logs / "job-1/g1/workerpool0-0.r0.out"
    assert output.read_text() == "up\nwarned\n"


def _run(prepared: agent_pb2.WorkerReport) -> agent_pb2.Assignment:
    return assignment("RUN", WARNED, prepared=prepared, warn_signal=int(signal.SIGUSR1))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
