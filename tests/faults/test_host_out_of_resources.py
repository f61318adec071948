"""A host without descriptors, processes, memory, inodes or disk: launches are refused, exits are told all the same."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e.cli_cluster import until
from tests.integration.agent.conftest import Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch
from tests.support import machine_parts

from holdfast.v1 import job_pb2

PYTHON = sys.executable
PIDS = machine_parts.pids_tree()
# A rank that waits for a file, then exits with 9.
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.05)\nsys.exit(9)"


def waits(agent: Agent) -> list[str]:
    return [PYTHON, "-c", WAITS, str(agent.root / "go")]


async def refused(controller: Controller) -> str:
    """Why a second worker can't be prepared."""
    await controller.assign(assignment("PREPARE", SLEEP, worker="workerpool0-1", grace_s=1.0))
    return (await controller.state("CANNOT_PREPARE", worker="workerpool0-1")).message


async def check_well_again(controller: Controller) -> None:
    """What was refused is launched once it is asked for again."""
    await launch(controller, SLEEP, worker="workerpool0-1", first_rank=1, generation=2)
    await controller.state("RUNNING", worker="workerpool0-1", generation=2)


async def test_without_descriptors(agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, waits(agent))
    await controller.state("RUNNING")
    assert agent.process is not None
    before = resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    assert await refused(controller)
    (agent.root / "go").touch()
    assert (await controller.exit()).exit.exit_code == 9
    await controller.state("EMPTY")
    resource.prlimit(agent.process.pid, resource.RLIMIT_NOFILE, before)
    await check_well_again(controller)


def left(group: Path, *, kill: bool = False) -> bool:
    """Move whoever is in a cgroup out of it, or kill it, and remove it. False while processes come and go there."""
    try:
        for pid in (group / "cgroup.procs").read_text().split():
            if kill:
                os.kill(int(pid), signal.SIGKILL)
            else:
                (PIDS / "cgroup.procs").write_text(pid)
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def pids(agent: Agent) -> Iterator[Path]:
    """A cgroup that counts processes, with the agent in it, its template and its warm shims."""
    group = PIDS / f"holdfast-test-{os.getpid()}"
    group.mkdir()
    try:
        assert agent.process is not None
        for pid in (agent.process.pid, *agent.spares()):
            (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        (group / "pids.max").write_text("max")
        until(lambda: left(group), 60, f"for {group} to be empty")


# gRPC would abort its process after 10 s without threads, were it to restart them around forks.
@pytest.mark.parametrize("for_s", [0, pytest.param(14, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "settings", [{"cgroups": False}], ids=[""]
)  # ranks are where the agent is, not in their own
@pytest.mark.require("pids")
async def test_without_processes(agent: Agent, controller: Controller, pids: Path, for_s: float) -> None:
    await controller.connected()
    await launch(controller, waits(agent))
    await controller.state("RUNNING")
    (pids / "pids.max").write_text("1")
    # A warm shim is there, so it is the rank that can't be started.
    await launch(controller, SLEEP, worker="workerpool0-1", first_rank=1)
    failed = await controller.exit(1)
    assert failed.exit.reason == job_pb2.EXIT_REASON_NOT_STARTED
    assert "cannot fork" in failed.exit.message
    (agent.root / "go").touch()
    assert (await controller.exit()).exit.exit_code == 9
    await controller.state("EMPTY")
    await anyio.sleep(for_s)
    assert agent.process is not None
    assert agent.process.poll() is None
    (pids / "pids.max").write_text("max")
    await check_well_again(controller)


BOMB = """
import os, sys
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as group:
        group.write(str(os.getpid()))
print("lit", flush=True)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""


@pytest.mark.require("pids")
async def test_fork_bomb_is_killed_whole(agent: Agent, controller: Controller) -> None:
    """Its cgroup stops it at 120 processes, each of which goes on trying; what is killed makes room for more."""
    await controller.connected()
    group = PIDS / f"holdfast-bomb-{os.getpid()}"
    group.mkdir()
    try:
        (group / "pids.max").write_text("120")
        await launch(controller, [PYTHON, "-c", BOMB, str(group / "cgroup.procs")], cwd="/")
        await agent.until(lambda: int((group / "pids.current").read_text()) >= 120, "a full cgroup")
        await controller.heartbeats(1)
        await controller.assign(assignment("STOP", grace_s=0.2))
        await controller.state("EMPTY")
        assert (group / "cgroup.procs").read_text() == ""
    finally:
        until(lambda: left(group, kill=True), 60, f"for {group} to be empty")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Path]:
    """8 MiB of disk for the agent's logs, and no more."""
    logs = tmp_path / "logs"
    logs.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(logs)])
    yield logs
    await anyio.run_process(["umount", "-l", str(logs)])


@pytest.mark.require("root")
@pytest.mark.require("mount")
@pytest.mark.parametrize("settings", [{"checks": {"disk_free_mb": 0}}])
async def test_without_room_for_output(
    small: Path, agent: Agent, controller: Controller, settings: dict[str, Any]
) -> None:
    """The rank is told by the kernel, as any program is; what becomes of it is told as it was."""
    await controller.connected()
    fills = "import sys\nsys.stderr.write('full soon\\n')\nwhile True:\n    sys.stdout.write('x' * 65536)"
    await launch(controller, [PYTHON, "-c", fills], cwd="/")
    report = await controller.exit()
    assert report.exit.exit_code not in (0, None)
    await controller.state("EMPTY")
    assert os.statvfs(small).f_bavail == 0
    await launch(controller, [PYTHON, "-c", "raise SystemExit(3)"], generation=2, cwd="/")
    assert (await controller.exit(generation=2)).exit.exit_code == 3


@pytest.fixture
async def own_state(tmp_path: Path) -> AsyncIterator[Path]:
    """A file system of its own for the agent's state, with 400 inodes."""
    state = tmp_path / "state"
    state.mkdir()
    options = "size=64m,nr_inodes=400,mode=711"
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", options, "none", str(state)])
    yield state
    await anyio.run_process(["umount", "-l", str(state)])


@pytest.mark.require("root", "mount")
@pytest.mark.parametrize("settings", [{"checks": {"disk_free_mb": 0}}])
async def test_without_inodes(own_state: Path, agent: Agent, controller: Controller) -> None:
    await controller.connected()
    await launch(controller, waits(agent), cwd="/")
    await controller.state("RUNNING")
    taken: list[Path] = []
    try:
        while True:
            taken.append(own_state / f"taken-{len(taken)}")
            taken[-1].touch()
    except OSError:
        pass
    message = await refused(controller)
    assert "No space left on device" in message
    (agent.root / "go").touch()
    assert (await controller.exit()).exit.exit_code == 9
    await controller.state("EMPTY")
    for path in taken:
        path.unlink(missing_ok=True)
    await check_well_again(controller)


def memory_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[0]) * resource.getpagesize()


async def test_a_shim_without_memory_ends_and_nothing_is_made_up(agent: Agent, controller: Controller) -> None:
    """Under ``ulimit -v`` of its own: the exit that it could not keep is told as lost, and the host goes on."""
    await controller.connected()
    await launch(controller, waits(agent))
    await controller.state("RUNNING")
    (shim,) = agent.shim_pids()
    limits = resource.prlimit(shim, resource.RLIMIT_AS)
    resource.prlimit(shim, resource.RLIMIT_AS, (memory_of(shim), limits[1]))
    (agent.root / "go").touch()
    found = (await controller.exit()).exit
    assert found.exit_code == 9 or (
        found.reason == job_pb2.EXIT_REASON_LOST_SHIM_DIED and not found.HasField("exit_code")
    )
    await controller.state("EMPTY")
    await check_well_again(controller)


async def test_without_memory(agent: Agent, controller: Controller) -> None:
    """Under ``ulimit -v``: the agent goes on, or ends and is started again; what ran is reported either way."""
    await controller.connected()
    await launch(controller, waits(agent))
    await controller.state("RUNNING")
    assert agent.process is not None
    before = resource.prlimit(agent.process.pid, resource.RLIMIT_AS)
    resource.prlimit(agent.process.pid, resource.RLIMIT_AS, (memory_of(agent.process.pid), before[1]))
    await controller.assign(assignment("PREPARE", SLEEP, worker="workerpool0-1", grace_s=1.0))
    await anyio.sleep(3)
    (agent.root / "go").touch()
    await anyio.sleep(2)
    if agent.process.poll() is None:
        resource.prlimit(agent.process.pid, resource.RLIMIT_AS, before)
    else:
        agent.start()
    assert (await controller.exit()).exit.exit_code == 9
    await controller.state("EMPTY")
    await launch(controller, SLEEP, worker="workerpool0-1", first_rank=1, generation=2)
    await controller.state("RUNNING", worker="workerpool0-1", generation=2)
