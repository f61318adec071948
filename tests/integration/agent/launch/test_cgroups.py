"""The agent and its workers' cgroups: where they are, what they find that nothing else does, when they go."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch
from tests.support import machine_parts

from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.core.worker.actions import LaunchRanks
from holdfast_agent.shell.cgroups.cgroups import Cgroups, find
from holdfast_agent.shell.config import Config
from holdfast_agent.shell.prepare.launch_order import Means, launch_order
from holdfast_agent.shell.session.assignment_checks import checked_assignment
from holdfast_agent.shell.shims.shim_files import start_ticks

KEY = WorkerId("job-1", "workerpool0-0")
# Leaves a process behind that carries no mark: another session, no environment.
ESCAPE = """
import os, time
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    os.execve("/bin/sleep", ["sleep", "600"], {})
time.sleep(600)
"""


def own_root(agent: Agent) -> Path:
    """The directory of this agent's, which has told its name in the log."""
    log = (agent.root / "agent.log").read_text()
    (line,) = [line for line in log.splitlines() if "cgroups.mode" in line][-1:]
    return Path(next(word for word in line.replace('"', " ").split() if "/holdfast/" in word).removeprefix("root="))


@pytest.mark.require("root", "cgroup")
async def test_what_a_dead_shim_has_left_is_found_though_it_carries_no_mark(
    agent: Agent, controller: Controller
) -> None:
    await controller.connected()
    await launch(controller, [sys.executable, "-c", ESCAPE])
    running = await controller.state("RUNNING")
    await agent.size(agent.logs / "job-1/g1/workerpool0-0.r0.out", 2)
    escaped = int((agent.logs / "job-1/g1/workerpool0-0.r0.out").read_text())
    agent.kill()
    os.kill(running.shim_pid, signal.SIGKILL)
    agent.start()
    await controller.state("EMPTY")
    assert start_ticks(escaped) is None, "at most its zombie"


@pytest.mark.require("root", "cgroup")
async def test_cgroups_go_with_generations_workers_and_agents(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    root = own_root(agent)

    def only(name: str) -> bool:
        return [path.name for path in root.glob("job-1/*/g*")] == [name]

    for generation in (1, 2):
        await launch(controller, SLEEP, generation=generation)
        await controller.state("RUNNING", generation=generation)
        await agent.until(partial(only, f"g{generation}"), "one cgroup")
    await controller.assign(assignment("STOP", generation=2))
    await controller.state("EMPTY", generation=2)
    await controller.assign(assignment("FORGET", generation=2))
    await agent.gone(root / "job-1")
    agent.kill(signal.SIGTERM)
    await agent.gone(root)


@pytest.mark.parametrize("settings", [{"cgroups": False}])
async def test_an_admin_may_do_without(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, SLEEP)
    pid = (await controller.state("RUNNING")).ranks[0].pid
    own, ranks = (Path(f"/proc/{which}/cgroup") for which in ("self", pid))
    assert [line for line in own.read_text().splitlines() if line.startswith("0::")] == [
        line for line in ranks.read_text().splitlines() if line.startswith("0::")
    ]


# -- where ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Config:
    files: dict[str, Any] = {name: tmp_path / name for name in ("state_dir", "log_dir", "ca", "cert", "key")}
    return Config(controller="c:1", name="host-0", **files)


def test_why_there_are_none_is_said(config: Config, tmp_path: Path) -> None:
    assert find(replace(config, cgroups=False)) == Cgroups("", "cgroups = false")
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(
        b"25 1 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        b"26 1 0:24 / /home/ann/\xff\x0c\xe2\x80\xa8 rw - fuse.sshfs ann@x: rw\n"
    )
    assert find(config, mounts) == Cgroups("", "cgroup v2 is not mounted")
    mounts.write_text(f"25 1 0:23 / {tmp_path}/nowhere rw - cgroup2 cgroup2 rw\n")
    assert find(config, mounts).why.endswith(" can't be made: No such file or directory")
    assert find(replace(config, cgroup_root=tmp_path)).why.endswith(" has no cgroup.kill; it takes Linux 5.14")


@pytest.mark.require("root", "cgroup")
def test_two_agents_of_one_name_on_one_machine_have_different_ones(config: Config, tmp_path: Path) -> None:
    both = find(config), find(replace(config, state_dir=tmp_path / "other"))
    try:
        assert both[0].root != both[1].root
        assert all(found.root.startswith(f"{machine_parts.cgroup_mount()}/holdfast/host-0-") for found in both)
    finally:
        for found in both:
            found.leave()
    assert not any(Path(found.root).exists() for found in both)


def test_without_cgroups_a_place_has_none() -> None:
    none = Cgroups("")
    assert (none.directory(KEY), none.generation(KEY, 3)) == ("", "")
    none.forget(KEY)
    none.leave()
    assert Cgroups("/c").generation(KEY, 3) == "/c/job-1/workerpool0-0/g3"


def test_the_jobs_reservation_reaches_the_shim() -> None:
    message = assignment("PREPARE", ["true"])
    message.launch.memory_mb = 4096
    launched = checked_assignment(message).launch
    assert launched is not None
    action = LaunchRanks(KEY, 1, (), memory_mb=launched.memory_mb)
    order = launch_order(action, WorkerUser("ada", "/", "/bin/sh"), Means(cgroups=Cgroups("/c")))
    assert (order["cgroup"], order["memory_bytes"]) == ("/c/job-1/workerpool0-0", 4096 << 20)
    assert 0 < order["pids"] <= 65536
    assert checked_assignment(agent_pb2.Assignment.FromString(assignment("PREPARE", ["true"]).SerializeToString()))
