"""The agent samples what it runs, and stays small."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import PYTHON, launch

LOADERS = (
    "import os, time\nfor _ in range(8):\n    if os.fork() == 0: break\nprint('up', flush=True); time.sleep(600)"
)


def followed(agent: Agent) -> set[int]:
    """Pids of the ranks whose main threads the agent reads."""
    assert agent.process is not None
    found = set()
    for link in Path(f"/proc/{agent.process.pid}/fd").iterdir():
        try:
            parts = os.readlink(link).split("/")
        except OSError:
            continue
        if parts[1:2] == ["proc"] and parts[3:4] == ["task"]:
            found.add(int(parts[2]))
    return found


def pss_mib(pid: int) -> float:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024


async def test_ranks_are_sampled_while_they_run_across_a_restart_of_the_agent(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", LOADERS], processes=8)
    running = await controller.state("RUNNING")
    pids = {rank.pid for rank in running.ranks}
    assert len(pids) == 8
    await agent.until(lambda: followed(agent) == pids, "every rank followed")
    assert agent.process is not None
    assert pss_mib(agent.process.pid) < 60
    assert agent.kill(signal.SIGKILL) < 0
    agent.start()
    await agent.until(lambda: followed(agent) == pids, "every rank followed again")
    await controller.assign(assignment("STOP"))
    await agent.until(lambda: followed(agent) == set(), "nobody followed")


async def test_worker_finds_a_folder_for_its_progress(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    code = "from holdfast.training.progress_calls import progress; progress(step=7)"
    await launch(controller, [PYTHON, "-c", code])
    assert (await controller.exit()).exit.exit_code == 0
    assert (agent.logs / "job-1/g1/workerpool0-0.progress/r0.progress").stat().st_size == 256
