"""A job's files on a file server that is gone or silent: the host is at fault, and not the program.

The file server is a FUSE mount of the test's own that no process serves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_host_checks import TRUE
from tests.integration.agent.launch.test_secrets import order
from tests.support import dead_file_server
from tests.support.dead_file_server import DeadFileServer

from holdfast._session import codec
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2, job_pb2
from holdfast_agent.core.launch.accounts import AccountRules
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.launch.preflight import DiskRoom
from holdfast_agent.core.worker.actions import Prepare
from holdfast_agent.core.worker.events import PreparationFailed
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Ran
from holdfast_agent.shell.containers import output_mount
from holdfast_agent.shell.containers.output_mount import Unreachable
from holdfast_agent.shell.output.archive import Archive
from holdfast_agent.shell.packages import environments
from holdfast_agent.shell.packages.as_user import EnvironmentsByUser
from holdfast_agent.shell.packages.environments import BUILDS_AT_ONCE, Wanted
from holdfast_agent.shell.packages.settings import CodeProblem, Packages
from holdfast_agent.shell.prepare import preflight, prepare
from holdfast_agent.shell.users import secret_files
from holdfast_agent.shell.users.accounts import Accounts

pytestmark = pytest.mark.require("fuse")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DeadFileServer]:
    with dead_file_server.mounted(tmp_path / "mount") as server:
        yield server


async def test_a_file_server_that_is_gone_is_the_hosts_fault_and_told_by_the_start(
    agent: Agent, controller: Controller, server: DeadFileServer
) -> None:
    """Not by the preparation, for which a host is cordoned: it may be a mount that only this job uses."""
    server.leave()
    await controller.connected()
    ways: list[tuple[Any, str]] = [
        (partial(assignment, command=TRUE, cwd=f"{server.folder}/run"), f"cannot change to {server.folder}/run: T"),
        (partial(assignment, command=[f"{server.folder}/train"]), f"{server.folder}/train: t"),
        (partial(order, file=server.folder / "key", value=b"v"), "cannot read the secret FROM_FILE: "),
    ]
    for generation, (made, words) in enumerate(ways, 1):
        await controller.assign(made("PREPARE", generation=generation))
        prepared = await controller.state("PREPARED", generation=generation)
        await controller.assign(made("RUN", generation=generation, prepared=prepared))
        ended = (await controller.exit(generation=generation)).exit
        assert job_pb2.ExitReason.Name(ended.reason) == "EXIT_REASON_CANNOT_START"
        assert ended.message.startswith(f"{HOST}: {words}")
        assert ended.message.lower().endswith("ransport endpoint is not connected")
        assert ended.host_fault
        await controller.state("EMPTY", generation=generation)


async def test_a_rank_whose_directory_is_gone_since_the_checks_is_the_hosts_fault(
    agent: Agent, controller: Controller, tmp_path: Path
) -> None:
    """As at a restart in place, before which nothing is checked again."""
    folder = tmp_path / "data"
    folder.mkdir()
    await controller.connected()
    await controller.assign(assignment("PREPARE", TRUE, cwd=str(folder)))
    prepared = await controller.state("PREPARED")
    with dead_file_server.mounted(folder) as server:
        server.leave()
        await controller.assign(assignment("RUN", TRUE, cwd=str(folder), prepared=prepared))
        ended = (await controller.exit()).exit
    assert job_pb2.ExitReason.Name(ended.reason) == "EXIT_REASON_CANNOT_START"
    assert ended.message == f"{HOST}: cannot change to {folder}: Transport endpoint is not connected"
    assert ended.host_fault


# --- one that doesn't answer: in this process, where the bounds can be shortened ------------------------------------


async def prepared(message: agent_pb2.Assignment, tmp_path: Path) -> PreparationFailed:
    """What the preparation says; it doesn't come to a shim, ports or hooks."""
    unused: dict[str, Any] = dict.fromkeys(
        ("files", "shims", "ports", "accounts", "fitness", "hooks", "containers", "archive", "code")
    )
    preparation = prepare.Preparation(**unused, root_allowed=True)
    user = WorkerUser("root", "/", "/bin/sh")
    facts = HostFacts("host-0", str(tmp_path / "logs"), str(tmp_path / "scratch"), user, 1)
    return cast(PreparationFailed, await preparation.run(Prepare(codec.assignment_from_proto(message)), facts))


async def test_one_that_does_not_answer_is_the_hosts_fault(
    server: DeadFileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "BOUND_S", 0.2)
    found = await prepared(assignment("PREPARE", TRUE, cwd=str(server.folder / "run")), tmp_path)
    assert found.host_fault
    assert found.message == "host-0: the checks took longer than 0.2 s; a file server may hang."


async def test_one_that_does_not_answer_for_a_secret_is_the_hosts_fault(
    server: DeadFileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "ANSWER_S", 0.2)
    found = await prepared(order("PREPARE", server.folder / "key"), tmp_path)
    assert found.host_fault
    assert found.message == "host-0: reading secret files takes longer than 0.2 s; a file server may hang."


async def test_a_look_at_secrets_that_cannot_begin_is_the_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Ran(How.NOT_STARTED, problem="Resource temporarily unavailable")
    monkeypatch.setattr(programs, "run", lambda _: refused)
    found = await prepared(order("PREPARE", tmp_path / "key"), tmp_path)
    assert found.host_fault
    assert found.message == "host-0: can't look at secret files as root: Resource temporarily unavailable."


# --- where results go, and packages that lie there ------------------------------------------------------------------


def test_results_that_are_to_go_to_a_server_that_is_gone_or_silent_are_the_hosts_fault(
    server: DeadFileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = WorkerUser("root", "/", "/bin/sh")
    monkeypatch.setattr(output_mount, "ENTER_S", 0.2)
    with pytest.raises(Unreachable, match=r"can't be made: did not end within 0\.2 s$") as late:
        output_mount.entered_by(user, f"{server.folder}/results")
    server.leave()
    with pytest.raises(Unreachable, match=r"Transport endpoint is not connected$") as gone:
        output_mount.entered_by(user, f"{server.folder}/results")
    (tmp_path / "file").touch()
    with pytest.raises(Unreachable, match=r"Not a directory$") as wrong:
        output_mount.entered_by(user, f"{tmp_path}/file/results")
    assert (late.value.host_fault, gone.value.host_fault, wrong.value.host_fault) == (True, True, False)


async def test_a_package_on_a_server_that_is_gone_or_silent_is_the_hosts_fault_and_holds_up_no_other_job(
    server: DeadFileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "LOOK_S", 0.2)
    settings = Packages(python=sys.executable, no_index=True)
    made = EnvironmentsByUser(tmp_path / "cache", settings, {}, "/usr/bin").of(WorkerUser("root", "/", "/bin/sh"))
    wanted = Wanted((), (f"file://{server.folder}/tiny-1.0-py3-none-any.whl",))
    for _ in range(BUILDS_AT_ONCE + 9):
        with pytest.raises(CodeProblem, match="a file server may hang") as late:
            await made.get(wanted, "job", lambda: None)
        assert late.value.host_fault
    server.leave()
    with pytest.raises(OSError, match="Transport endpoint is not connected"):
        await made.get(wanted, "job", lambda: None)


# --- and one on which the agent's own directories are -----------------------------------------------------------------


def test_room_that_cannot_be_found_out_is_the_hosts_fault_and_does_not_end_its_agent(
    server: DeadFileServer, tmp_path: Path
) -> None:
    server.leave()
    found = preflight._room(f"{server.folder}/logs", "disk_free_mb")
    assert found == DiskRoom(f"{server.folder}/logs", "disk_free_mb", problem="Transport endpoint is not connected")
    assert preflight._room(f"{tmp_path}/not/there/yet", "disk_free_mb").free_bytes
    (tmp_path / "file").touch()
    assert preflight._room(f"{tmp_path}/file/logs", "disk_free_mb").free_bytes


def test_output_that_cannot_be_looked_at_does_not_end_its_archive(server: DeadFileServer, tmp_path: Path) -> None:
    server.leave()
    user = WorkerUser("root", "/", "/bin/sh")
    facts = HostFacts("host-0", f"{server.folder}/logs", str(tmp_path), user, 1)
    archive = Archive(tmp_path, facts, Accounts(user, AccountRules(0)), lambda *_: True)
    assert archive._written(WorkerId("job-1", "workerpool0-0")) == {}
