"""The agent as a program: what it says about itself, and how it refuses what can't work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast import __version__

pytestmark = pytest.mark.cold

COMMAND = [sys.executable, "-m", "holdfast_agent"]


def test_version_and_help_need_no_configuration() -> None:
    said = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"holdfast-agent {__version__}\n"
    assert (
        "--config FILE" in subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "",
            "agent.toml: No such file or directory. Name another with --config FILE, or make it: holdfast-agent join",
        ),
        ("colour = 'red'", "unknown key 'colour'"),
        ("name = 'a/b'", "letters, digits, dot, dash"),
        ("port_range = 'many'", "FIRST-LAST"),
        ("port_range = '300-200'", "no usable ports"),
        ("log_limit_mb = 0", "at least 1"),
        ("log_level = 'loud'", "log_level: 'loud' is unknown"),
        ("worker_user = 'nobody-of-that-name'", "no user 'nobody-of-that-name'"),
        ("env_file = 'site.env'", "expected NAME=VALUE"),
    ],
)
def test_wrong_configuration_is_refused_with_a_sentence(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "site.env").write_text("# the site's\nGOOD=1\nnot a variable\n")
    values = {"controller": "127.0.0.1:1", "name": "host-0", "state_dir": "s", "log_dir": "l"}
    values |= {"ca": "ca.pem", "cert": "host.pem", "key": "host.key"}
    config = tmp_path / "agent.toml"
    if line:
        for name in ("ca.pem", "host.pem", "host.key"):
            (tmp_path / name).write_text("x")
        values.pop(line.split(" ")[0], None)
        config.write_text("\n".join([*(f"{k} = {v!r}" for k, v in values.items()), line]) + "\n")
    ended = subprocess.run(
        [*COMMAND, "--config", str(config)], capture_output=True, text=True, timeout=30, check=False
    )
    # An interface may be there later, so a supervisor is to start the agent again.
    assert ended.returncode == (1 if line.startswith("data_interface") else 2), ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


async def test_sigterm_ends_the_agent_and_not_its_worker(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    (rank,) = (await controller.state("RUNNING")).ranks
    assert agent.kill(signal.SIGTERM) == 0
    os.kill(rank.pid, 0)


async def test_stopped_agent_says_so_last_of_all(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    await controller.state("RUNNING")
    assert await asyncio.to_thread(agent.kill, signal.SIGTERM) == 0
    said = [message.WhichOneof("message") for message in controller.heard]
    assert said[-1] == "agent_stopping" and said.count("agent_stopping") == 1
    assert "going_down" not in said


async def test_killed_agent_says_nothing(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await asyncio.to_thread(agent.kill, signal.SIGKILL)
    assert "agent_stopping" not in [message.WhichOneof("message") for message in controller.heard]


async def test_agent_that_hears_nothing_from_its_controller_ends_all_the_same(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await controller.stop()
    assert await asyncio.to_thread(agent.kill, signal.SIGTERM) == 0


async def test_session_that_nobody_serves_any_more_is_given_up_for_a_new_one(
    agent: Agent, controller: Controller
) -> None:
    controller.acks_heartbeats = True
    await controller.connected()
    await launch(controller, SLEEP)
    running = await controller.state("RUNNING")
    await controller.connected(times=3)
    assert [rank.pid for rank in controller.reports()[-1].ranks] == [rank.pid for rank in running.ranks]


async def test_task_that_is_cancelled_by_no_one_of_ours_ends_the_agent_as_a_fault(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    agent.kill()
    program = (
        "import asyncio, sys\n"
        "from holdfast_agent.__main__ import main\n"
        "from holdfast_agent.shell.main.renewal import Renewal\n"
        "async def run(self): raise asyncio.CancelledError\n"
        "Renewal.run = run\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", program, "--config", str(agent.root / "agent.toml")]
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 1
    assert "cancelled that nothing had asked to end" in ended.stderr


async def test_spare_shims_end_with_their_agent(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await agent.until(lambda: bool(agent.spares()), "a spare shim")
    spares = agent.spares()
    agent.kill()
    for pid in spares:
        await agent.gone(Path(f"/proc/{pid}"))


async def test_shim_that_died_before_the_launch_is_replaced(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    prepared = await controller.state("PREPARED")
    os.kill(prepared.shim_pid, signal.SIGKILL)
    await agent.gone(Path(f"/proc/{prepared.shim_pid}"))
    await controller.assign(assignment("RUN", SLEEP, prepared=prepared))
    running = await controller.state("RUNNING")
    assert running.shim_pid not in (0, prepared.shim_pid)


async def test_malformed_assignment_is_passed_over(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    for job, worker in (("../../etc", "workerpool0-0"), ("job-1", "../x"), ("", "workerpool0-0")):
        await controller.assign(assignment("PREPARE", SLEEP, job=job, worker="workerpool0-0"))
        broken = assignment("PREPARE", SLEEP, job=job)
        broken.worker = worker
        await controller.assign(broken)
        controller.assigned.clear()
    await controller.assign(assignment("PREPARE", SLEEP, job="job-2", worker="workerpool0-1"))
    for worker in ("workerpool0-0", "workerpool0-1"):
        await controller.state("PREPARED", worker=worker)
    assert sorted(path.name for path in agent.workers.iterdir()) == ["job-1", "job-2"]


@pytest.mark.parametrize("settings", [{"port_range": "21300-21302"}])
async def test_full_port_range_is_said(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await controller.assign(assignment("PREPARE", SLEEP))
    await controller.state("PREPARED")
    await controller.assign(assignment("PREPARE", SLEEP, job="job-2", worker="workerpool0-1"))
    refused = await controller.state("CANNOT_PREPARE", worker="workerpool0-1")
    assert "ports of 21300-21302 are free" in refused.message
    await controller.assign(assignment("STOP"))
    await controller.state("EMPTY")
    await controller.assign(assignment("PREPARE", SLEEP, job="job-2", worker="workerpool0-1"))
    await controller.state("PREPARED", worker="workerpool0-1")


async def test_launch_too_long_for_its_shim_is_refused(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    env = {f"V{i}": "x" * 100_000 for i in range(9)}
    await controller.assign(assignment("PREPARE", SLEEP, env=env, processes=10))
    prepared = await controller.state("PREPARED")
    await controller.assign(assignment("RUN", SLEEP, env=env, processes=10, prepared=prepared))
    assert "too long" in (await controller.state("CANNOT_PREPARE")).message
