"""Each generation's own /dev/shm with the real agent: a job's workers share it, an agent's restart keeps it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import launch

pytestmark = pytest.mark.require("root", "mount")
# Leaves a file behind, and says what the ranks before it have left.
LEAVE = """
import os, time
name = f"/dev/shm/nccl-{os.environ['HOLDFAST_WORKER']}.{os.environ['RANK']}"
open(name, "w").close()
print("up", *sorted(os.listdir("/dev/shm")), flush=True)
time.sleep(600)
"""
PROGRAM = [sys.executable, "-c", LEAVE]


def said(agent: Agent, worker: str, generation: int = 1) -> str:
    path = agent.logs / f"job-1/g{generation}/{worker}.r0.out"
    return path.read_text() if path.exists() else ""


def log_of(agent: Agent) -> str:
    return (agent.root / "agent.log").read_text()


def host_mounts(agent: Agent) -> list[str]:
    """Those that could be ours: other tests mount, too."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if "/dev/shm" in line or str(agent.root) in line]


def mounts(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")


async def test_workers_of_a_job_share_one_across_an_agents_restart_and_the_next_generation_gets_another(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    outside = host_mounts(agent)
    await launch(controller, PROGRAM, worker="workerpool0-0")
    first = (await controller.state("RUNNING", worker="workerpool0-0")).ranks[0].pid
    await agent.until(lambda: said(agent, "workerpool0-0") == "up nccl-workerpool0-0.0\n", "the first rank")
    agent.kill()
    agent.start()
    await controller.connected(times=2)
    await launch(controller, PROGRAM, worker="workerpool1-0")
    second = (await controller.state("RUNNING", worker="workerpool1-0")).ranks[0].pid
    both = "up nccl-workerpool0-0.0 nccl-workerpool1-0.0\n"
    await agent.until(lambda: said(agent, "workerpool1-0") == both, "the second rank among the first's files")
    assert mounts(first) == mounts(second) != mounts(os.getpid())
    for worker in ("workerpool0-0", "workerpool1-0"):
        await launch(controller, PROGRAM, worker=worker, generation=2)
        await controller.state("RUNNING", worker=worker, generation=2)
        await agent.until(lambda worker=worker: said(agent, worker, 2) != "", "what a rank of generation 2 finds")  # type: ignore[misc]
    assert said(agent, "workerpool0-0", 2) == "up nccl-workerpool0-0.0\n", "not a fresh one"
    await agent.until(lambda: said(agent, "workerpool1-0", 2) == both, "a fresh one")
    assert host_mounts(agent) == outside
    for worker in ("workerpool0-0", "workerpool1-0"):
        await controller.assign(assignment("STOP", worker=worker, generation=2))
        await controller.state("EMPTY", worker=worker, generation=2)
        await controller.assign(assignment("FORGET", worker=worker, generation=2))
    await agent.gone(agent.workers / "job-1")
    assert "shm.mode" in log_of(agent)
    assert "private" in log_of(agent)


@pytest.mark.parametrize("settings", [{"private_shm": False}])
async def test_an_admin_may_have_workers_share_the_hosts(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, [sys.executable, "-c", "import time; time.sleep(600)"])
    pid = (await controller.state("RUNNING")).ranks[0].pid
    assert mounts(pid) == mounts(os.getpid())


async def test_a_program_that_works_in_the_hosts_shm_finds_itself_there(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [sys.executable, "-c", "import os; print(os.getcwd())"], cwd="/dev/shm")
    await controller.exit()
    assert said(agent, "workerpool0-0") == "/dev/shm\n"
