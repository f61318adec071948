"""Commands whose stdin, stdout or stderr was closed before they began, or whose reader goes away."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.client.fake_controller import FakeController

from holdfast.v1 import job_pb2

pytestmark = pytest.mark.anyio

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
COMMANDS = ("ps", "job list -o json", "job show j1", "job watch j1", "logs j1", "--help", "ps --help")


@pytest.fixture
def env(controller: FakeController, tmp_path: Path) -> dict[str, str]:
    controller.add_job(job_pb2.CustomJob(display_name="first", state=job_pb2.JOB_STATE_SUCCEEDED, generation=1))
    controller.jobs["j1"].job_spec.worker_pool_specs.add(replica_count=1, processes_per_worker=1)
    controller.write("j1", b"hello\n")
    config = controller.write_settings(tmp_path / "client.toml")
    return {"PATH": os.environ["PATH"], "HOLDFAST_CONFIG": str(config), "HOME": str(tmp_path)}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_whose_reader_has_gone_ends_as_by_sigpipe(env: dict[str, str], command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with anyio.fail_after(60):
        result = await anyio.run_process([HOLDFAST, *command.split()], env=env, check=False, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_without_stdin_and_stdout_prints_nowhere(env: dict[str, str], command: str) -> None:
    with anyio.fail_after(60):
        result = await anyio.run_process(["bash", "-c", f"{HOLDFAST} {command} <&- >&-"], env=env, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
