"""Another account of a host finds no job by listing: not in directories, cgroups, sockets or command lines."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.integration.agent.conftest import Agent, agent, controller
from tests.integration.agent.controller import Controller
from tests.integration.agent.launch.test_launch import launch
from tests.support.machine_parts import cgroup_mount

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import Program

__all__ = ["agent", "controller"]

pytestmark = [pytest.mark.anyio, pytest.mark.require("root")]

NOBODY = WorkerUser("nobody", "/", "/bin/sh", 65534, 65534, ())
JOB = "unlisted-7q4k2m"
LOOK = """
import json, os, sys
name, found = sys.argv[1].encode(), []
for top in sys.argv[2:]:
    for folder, folders, files in os.walk(os.fsencode(top)):
        found += [os.fsdecode(os.path.join(folder, each)) for each in (*folders, *files) if name in each]
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    for file in ("cmdline", "comm", "environ", "maps", "mountinfo"):
        try:
            if name in open(f"/proc/{pid}/{file}", "rb").read():
                found.append(f"/proc/{pid}/{file}")
        except OSError:
            pass
if name in open("/proc/net/unix", "rb").read():
    found.append("/proc/net/unix")
print(json.dumps(found))
"""


def look(root: Path) -> list[str]:
    """What ``nobody`` finds of the job."""
    ours = [str(path) for path in (root, *root.glob("*"), *root.glob("state/*")) if path.is_dir()]
    tops = [*ours, "/tmp", "/dev/shm", "/run", *filter(None, [cgroup_mount()])]
    done = programs.run(Program(["/usr/bin/python3", "-c", LOOK, JOB, *tops], 60, user=NOBODY))
    assert done.code == 0, done.errors
    found: list[str] = json.loads(done.output)
    return found


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "results").mkdir(mode=0o711)
    return {"worker_user": "daemon", "lowest_uid": 1}


async def test_another_account_finds_no_name_of_a_job(agent: Agent, controller: Controller, tmp_path: Path) -> None:
    await controller.connected()
    agent.open_to_others()
    agent.logs.chmod(0o755)
    assert agent.kill() != 0
    agent.start()
    await controller.connected(2)
    os.chown(tmp_path / "results", 1, 1)
    before = await anyio.to_thread.run_sync(look, agent.root)
    await launch(controller, ["/bin/sleep", "600"], job=JOB, output=str(tmp_path / "results"))
    await controller.state("RUNNING")
    agent.open_to_others()
    assert (agent.logs / JOB).is_dir()
    until = time.monotonic() + 3
    found = set()
    while time.monotonic() < until:  # copies of its output begin and end meanwhile
        found |= set(await anyio.to_thread.run_sync(look, agent.root))
    assert found - set(before) == set()
    agent.logs.chmod(0o755)
    assert await anyio.to_thread.run_sync(look, agent.root) == [str(agent.logs / JOB)], "it would be seen"
