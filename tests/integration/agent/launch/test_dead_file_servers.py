"""A job's files on a file server that is gone or silent: the host is at fault, and not the program.

The file server is a FUSE mount of the test's own that no process serves.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from holdfast.v1 import agent_pb2
from holdfast_agent.core.launch.environment import HostFacts, WorkerUser
from holdfast_agent.core.worker.actions import Prepare
from holdfast_agent.core.worker.events import PreparationFailed
from holdfast_agent.shell.prepare import prepare
from holdfast_agent.shell.users import secret_files

pytestmark = pytest.mark.require("fuse")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DeadFileServer]:
    with dead_file_server.mounted(tmp_path / "mount") as server:
        yield server


async def test_a_file_server_that_is_gone_is_the_hosts_fault(
    agent: Agent, controller: Controller, server: DeadFileServer
) -> None:
    server.leave()
    await controller.connected()
    await controller.assign(assignment("PREPARE", TRUE, cwd=str(server.folder / "run")))
    report = await controller.state("CANNOT_PREPARE")
    assert report.host_fault
    assert report.message == f"{HOST}: {server.folder}/run: Transport endpoint is not connected."
    await controller.assign(assignment("PREPARE", [str(server.folder / "train")], generation=2))
    report = await controller.state("CANNOT_PREPARE", generation=2)
    assert report.host_fault
    assert report.message == f"{HOST}: {server.folder}/train: Transport endpoint is not connected."


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
