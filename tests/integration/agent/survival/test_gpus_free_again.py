"""A generation's GPUs are free before the next starts: real agent and shim, official binding, scripted driver."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch
from tests.support.fake_nvml.library import GIB, FakeNvml

from holdfast.v1 import agent_pb2

pytestmark = pytest.mark.require("cc")
MIB = 1 << 20
UNUSED = 520 * MIB
ZERO = ("GPU-0",)


def driver(fake: FakeNvml, used: int, *more: str) -> None:
    """Two GPUs, the second one idle."""
    fake.replace(
        f"gpu GPU-0 00000000:17:00.0 {80 * GIB} {used} NVIDIA H100 80GB",
        f"gpu GPU-1 00000000:18:00.0 {80 * GIB} {UNUSED} NVIDIA H100 80GB",
        *more,
    )


@pytest.fixture
def settings(fake_nvml: FakeNvml) -> dict[str, Any]:
    driver(fake_nvml, UNUSED)
    return {"simulated_gpus": 0}


async def training(agent: Agent, controller: Controller, fake: FakeNvml) -> agent_pb2.WorkerReport:
    """A worker runs and holds 30 GiB of its GPU."""
    await controller.connected()
    await agent.appeared(agent.root / "state/gpu_unused.json")
    await launch(controller, SLEEP, gpus=ZERO)
    running = await controller.state("RUNNING")
    driver(fake, 30 * GIB, f"pid 0 {running.ranks[0].pid}")
    return running


def empties(controller: Controller) -> int:
    return sum(report.state == agent_pb2.REPORTED_STATE_EMPTY for report in controller.reports())


def state_of(controller: Controller) -> str:
    report = controller.reports()[-1]
    return agent_pb2.ReportedState.Name(report.state).removeprefix("REPORTED_STATE_")


async def test_memory_that_comes_back_late_holds_the_next_generation_back_until_then(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    running = await training(agent, controller, fake_nvml)
    os.kill(running.ranks[0].pid, signal.SIGKILL)
    await controller.exit()
    driver(fake_nvml, 30 * GIB)
    said = await controller.state("STOPPING")
    assert said.message.startswith(f"{HOST}: GPU 0 (GPU-0) ")
    await controller.assign(assignment("PREPARE", SLEEP, generation=2, gpus=ZERO))
    await controller.heartbeats(2)
    assert state_of(controller) == "STOPPING"
    assert controller.reports()[-1].message == f"{HOST}: GPU 0 (GPU-0) holds 30200 MiB more than when it was empty"
    driver(fake_nvml, UNUSED + 60 * MIB)
    await controller.state("PREPARED", generation=2)
    assert (agent.workers / "job-1/workerpool0-0/freed").read_text() == "1\n"


async def test_memory_that_never_comes_back_is_stuck_and_survives_the_agents_restart(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    await training(agent, controller, fake_nvml)
    driver(fake_nvml, 2 * GIB)
    await controller.assign(assignment("STOP"))
    stuck = await controller.state("STUCK")
    assert stuck.message == f"{HOST}: GPU 0 (GPU-0) holds 1528 MiB more than when it was empty"
    agent.kill()
    controller.heard.clear()
    agent.start()
    hello = await controller.connected(times=2)
    assert [worker.state for worker in hello.workers] == [agent_pb2.REPORTED_STATE_STOPPING]
    again = await controller.state("STOPPING")
    assert again.message == stuck.message
    assert not empties(controller)
    driver(fake_nvml, UNUSED)
    await controller.state("EMPTY")
    await controller.assign(assignment("FORGET"))
    await agent.gone(agent.workers / "job-1")


async def test_a_compute_process_that_stays_is_named(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    await training(agent, controller, fake_nvml)
    left = await asyncio.create_subprocess_exec(*SLEEP)
    try:
        driver(fake_nvml, UNUSED, f"pid 0 {left.pid}")
        await controller.assign(assignment("STOP"))
        said = await controller.until(lambda: [r.message for r in controller.reports() if r.message])
        assert said[0] == f"{HOST}: GPU 0 (GPU-0) is used by process {left.pid}"
        driver(fake_nvml, UNUSED)
        await controller.state("EMPTY")
    finally:
        left.kill()
        await left.wait()


async def test_a_compute_process_of_before_is_not_the_places(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    """Such as a monitor of the admin's."""
    await training(agent, controller, fake_nvml)
    driver(fake_nvml, UNUSED, f"pid 0 {os.getpid()}")
    await controller.assign(assignment("STOP"))
    await controller.state("EMPTY")
    assert [r.message for r in controller.reports() if r.message] == []


async def test_a_driver_that_hangs_withholds_the_place_until_it_answers(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    await training(agent, controller, fake_nvml)
    driver(fake_nvml, UNUSED, "hang nvmlDeviceGetMemoryInfo 0")
    began = time.monotonic()
    await controller.assign(assignment("STOP"))
    stuck = await controller.state("STUCK")
    assert time.monotonic() - began >= 10
    assert stuck.message.startswith(f"{HOST}: the GPU driver doesn't answer, so nothing is proven of its GPUs (")
    driver(fake_nvml, UNUSED)
    await controller.state("EMPTY")


async def test_figures_that_the_driver_does_not_have_withhold_nothing(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    await training(agent, controller, fake_nvml)
    absent = [f"fail nvmlDeviceGet{name} 0 3" for name in ("MemoryInfo", "ComputeRunningProcesses_v3")]
    driver(fake_nvml, 30 * GIB, *absent)
    await controller.assign(assignment("STOP"))
    await controller.state("EMPTY")
    assert [r.message for r in controller.reports() if r.message] == []


async def test_without_a_driver_library_the_processes_end_is_proof_enough(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await training(agent, controller, fake_nvml)
    driver(fake_nvml, 30 * GIB)
    await controller.assign(assignment("STOP"))
    while "30200 MiB" not in controller.reports()[-1].message:
        await controller.heartbeats(1)
    agent.kill()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    controller.heard.clear()
    agent.start()
    await controller.state("EMPTY")


async def test_one_gpus_memory_says_nothing_of_a_worker_on_another(
    agent: Agent, controller: Controller, fake_nvml: FakeNvml
) -> None:
    await training(agent, controller, fake_nvml)
    await launch(controller, SLEEP, worker="workerpool1-0", gpus=("GPU-1",))
    await controller.state("RUNNING", worker="workerpool1-0")
    await controller.assign(assignment("STOP", worker="workerpool1-0"))
    await controller.state("EMPTY", worker="workerpool1-0")
    assert state_of(controller) == "RUNNING"
