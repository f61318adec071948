"""A worker that runs as another user and tries everything against the agent, the shim and the files of root's."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from tests.integration.agent.conftest import Agent, agent, controller
from tests.integration.agent.controller import Controller, assignment

__all__ = ["agent", "controller"]

pytestmark = [pytest.mark.anyio, pytest.mark.require("root")]

TRAPS = r"""
import os, sys
errors = os.environ["TORCHELASTIC_ERROR_FILE"]
progress = os.environ["HOLDFAST_PROGRESS_DIR"]
rank = os.environ["RANK"]
kind = sys.argv[1 + int(rank)]
if kind == "nested":
    open(errors, "w").write('{"message": ' + "[" * 60000)
elif kind == "nested, whole":
    open(errors, "w").write('{"message": ' + "[" * 900 + "]" * 900 + "}")
elif kind == "huge":
    open(errors, "w").write('{"message": "' + "x" * 50_000_000)
elif kind == "binary":
    open(errors, "wb").write(os.urandom(1 << 16))
elif kind == "pipe":
    os.mkfifo(errors)
    os.mkfifo(progress + f"/r{rank}.progress")
elif kind == "link":
    os.symlink("/etc/shadow", errors)
    os.symlink("/etc/shadow", progress + f"/r{rank}.progress")
os.mkdir(rank)
os.chdir(rank)
os.symlink("/etc", "link")
os.mkfifo("pipe")
for _ in range(1200 if rank == "0" else 2):
    os.mkdir("deep")
    os.chdir("deep")
sys.exit(7)
"""

BREAK_OUT = r"""
import json, os, signal, socket, sys
state, root, shim = sys.argv[1], sys.argv[2], os.getppid()
found = {}
def tried(what, call):
    try:
        call()
    except OSError as error:
        found[what] = error.strerror
    else:
        found[what] = "done"
def connect():
    place = os.open(f"{state}/workers/job-1/workerpool0-0", os.O_PATH)  # its path may be too long for a socket
    socket.socket(socket.AF_UNIX).connect(f"/proc/self/fd/{place}/sock")
tried("list the agent's places", lambda: os.listdir(f"{state}/workers"))
tried("talk to the shim", connect)
tried("read the host's key", lambda: open(f"{root}/host.key").read())
tried("kill the shim", lambda: os.kill(shim, signal.SIGKILL))
tried("stop the shim", lambda: os.kill(shim, signal.SIGSTOP))
tried("read the shim's environment", lambda: open(f"/proc/{shim}/environ").read())
tried("write the shim's memory", lambda: open(f"/proc/{shim}/mem", "r+b"))
tried("take a descriptor of the shim's", lambda: os.listdir(f"/proc/{shim}/fd"))
logs = os.path.dirname(os.environ["HOLDFAST_PROGRESS_DIR"])
tried("write into the generation's directory", lambda: os.mkdir(logs + "/x"))
tried("write into all jobs' scratch", lambda: os.mkdir(os.path.dirname(os.getcwd()) + "/other"))
tried("become root", lambda: os.setuid(0))
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
found["no_new_privs"] = status["NoNewPrivs"].strip()
print(json.dumps(found), flush=True)
"""


@pytest.fixture
def settings() -> dict[str, Any]:
    """Workers run as nobody."""
    return {"allow_root_workers": False, "worker_user": "nobody"}


@pytest.fixture(scope="module")
def python() -> str:
    """One that the user of the workers may run."""
    for found in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if found:
                subprocess.run([found, "-c", ""], user=65534, group=65534, extra_groups=(), check=True)
                return found
    pytest.skip("nobody may run a Python here")


async def run(controller: Controller, command: list[str], processes: int = 1) -> None:
    await controller.assign(assignment("PREPARE", command, processes=processes))
    prepared = await controller.state("PREPARED")
    await controller.assign(assignment("RUN", command, prepared=prepared, processes=processes))


async def test_what_a_worker_leaves_where_root_looks_costs_neither_the_agent_nor_any_exit(
    agent: Agent, controller: Controller, python: str
) -> None:
    await controller.connected()
    agent.open_to_others()
    kinds = ["nested", "nested, whole", "huge", "binary", "pipe", "link"]
    await run(controller, [python, "-c", TRAPS, *kinds], processes=len(kinds))
    for rank in range(len(kinds)):
        ended = (await controller.exit(rank)).exit
        assert ended.exit_code == 7, kinds[rank]
        assert len(ended.message) < 2000 and "root:" not in ended.message
    await controller.state("EMPTY")
    await controller.assign(assignment("FORGET"))
    await agent.gone(agent.root / "state/scratch/job-1")
    assert agent.process is not None and agent.process.poll() is None
    assert len(controller.hellos) == 1, "it is the same agent, in the same session"


async def test_a_worker_reaches_nothing_of_the_agents_or_the_shims(
    agent: Agent, controller: Controller, python: str
) -> None:
    await controller.connected()
    agent.open_to_others()
    await run(controller, [python, "-c", BREAK_OUT, str(agent.root / "state"), str(agent.root)])
    assert (await controller.exit()).exit.exit_code == 0
    found = json.loads(_output(agent))
    assert found.pop("no_new_privs") == "1"
    refused = {os.strerror(number) for number in (1, 13)}
    assert {what: said for what, said in found.items() if said not in refused} == {}
    assert len(found) == 11


def _output(agent: Agent) -> str:
    return (agent.logs / "job-1/g1/workerpool0-0.r0.out").read_text()
