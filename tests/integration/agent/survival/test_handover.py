"""An agent is asked where it stands, waited for, replaced, and its workers are the same: real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.integration.agent.conftest import HOST, Agent
from tests.integration.agent.controller import Controller, assignment
from tests.integration.agent.launch.test_launch import SLEEP, launch

from holdfast.errors import Unavailable
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.doctor import status_client
from holdfast_agent.shell.main import cli

PYTHON = sys.executable
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
AS_NOBODY = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])
os.setresuid(65534, 65534, 65534)
sock.connect("agent.sock")
print(sock.recv(1000))
"""


class Host:
    """Commands as an admin types them on the agent's host."""

    def __init__(self, agent: Agent, capfd: pytest.CaptureFixture[str]) -> None:
        self._agent = agent
        self._capfd = capfd

    async def run(self, *words: str) -> tuple[int, str]:
        """(exit status, output)."""
        self._capfd.readouterr()
        line = [*words, "--config", str(self._agent.root / "agent.toml")]
        code = await anyio.to_thread.run_sync(cli.main, line)
        said = self._capfd.readouterr()
        return code, said.out + said.err

    async def serving(self) -> None:
        """Wait until the present agent answers, connected."""
        await self._agent.until(self._is_serving, "an agent that answers")

    def busy(self) -> bool:
        return bool(status_client.ask(self._agent.root / "state")["busy"])

    def _is_serving(self) -> bool:
        assert self._agent.process is not None
        try:
            found = status_client.ask(self._agent.root / "state")
        except Unavailable:
            return False
        return bool(found["connected"]) and found["pid"] == self._agent.process.pid


@pytest.fixture
def host(agent: Agent, capfd: pytest.CaptureFixture[str]) -> Host:
    return Host(agent, capfd)


async def test_workers_of_an_agent_that_is_killed_and_replaced_are_compared(
    agent: Agent, controller: Controller, host: Host
) -> None:
    await controller.connected()
    await launch(controller, SLEEP, processes=3)
    running = await controller.state("RUNNING")
    pids = [rank.pid for rank in running.ranks]
    await host.serving()
    code, said = await host.run("upgrade", "before")
    assert code == 0, said
    from holdfast_agent.shell.main import upgrade

    print(upgrade.take(agent.root / "state"), [p.read_text() for p in agent.workers.glob("*/*/*.journal")])
    assert f"shim {running.shim_pid}, rank 0 {pids[0]}, rank 1 {pids[1]}, rank 2 {pids[2]}" in said
    agent.kill()
    assert (await host.run("status"))[0] == 1
    code, said = await host.run("upgrade", "after", "--max-wait", "0.2")
    assert (code, "after 0.2 s: No agent of" in said) == (1, True), said
    agent.start()
    code, said = await host.run("upgrade", "after")
    assert code == 0, said
    for pid in (running.shim_pid, *pids):
        assert re.search(rf" {pid} +{pid} +unchanged", said), said
    assert "4 of 4 processes unchanged" in said
    code, said = await host.run("upgrade", "after")
    assert (code, "nothing to compare" in said) == (0, True), "what was compared is not compared again"

    # One rank ends while there is no agent, and its shim keeps the record.
    assert (await host.run("upgrade", "before"))[0] == 0
    agent.kill()
    os.kill(pids[1], signal.SIGKILL)
    await agent.journalled("exited", generation=1)
    agent.start()
    code, said = await host.run("upgrade", "after")
    assert code == 0, said
    assert "ended by itself: SIGNALED, signal 9" in said

    # The shim dies with its agent: nobody knows how the ranks ended.
    assert (await host.run("upgrade", "before"))[0] == 0
    agent.kill()
    for pid in (running.shim_pid, pids[0], pids[2]):
        os.kill(pid, signal.SIGKILL)
        await agent.gone(Path(f"/proc/{pid}/exe"))
    agent.start()
    code, said = await host.run("upgrade", "after")
    assert code == 1, said
    assert said.count("LOST") >= 3, said


async def test_an_upgrade_waits_for_a_hang_and_a_stop_that_are_being_handled(
    agent: Agent, controller: Controller, host: Host
) -> None:
    await controller.connected()
    await launch(controller, [PYTHON, "-c", STUBBORN])
    running = await controller.state("RUNNING")
    await agent.output("job-1/g1/workerpool0-0.r0.out", "up")
    await host.serving()
    code, said = await host.run("status")
    assert f"{HOST}: 1 worker, connected" in said
    assert f"job-1/workerpool0-0: running, generation 1, shim {running.shim_pid}, rank 0" in said
    code, said = await host.run("status", "-o", "json")
    assert json.loads(said)["workers"][0]["ranks"] == [{"rank": 0, "pid": running.ranks[0].pid}]

    await controller.until(lambda: controller.transfer is not None)
    order = agent_pb2.TakeEvidence(id=1, job_id="job-1", worker="workerpool0-0", generation=1)
    await controller.transfer_say(take_evidence=order)
    await agent.until(host.busy, "an agent that takes evidence")
    code, said = await host.run("upgrade", "before")
    assert code == 0, said
    assert "waiting, 120 s at most: job-1/workerpool0-0: evidence of a hang is being taken" in said
    assert 1 in controller.evidence, "the evidence has not come"

    await controller.assign(assignment("STOP", grace_s=60))
    await controller.state("STOPPING")
    code, said = await host.run("upgrade", "before", "--max-wait", "0.5")
    assert code == 1, said
    assert "waiting, 0.5 s at most: job-1/workerpool0-0: generation 1 is being stopped" in said
    assert "not waiting any longer than 0.5 s" in said
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.assign, assignment("STOP", grace_s=0))
        code, said = await host.run("upgrade", "before")
    assert code == 0, said
    assert "nothing runs here" in said


@pytest.mark.require("root")
async def test_the_agent_tells_only_root_where_it_stands(agent: Agent, controller: Controller, host: Host) -> None:
    await controller.connected()
    await host.serving()
    sock = agent.root / "state/agent.sock"
    assert sock.stat().st_mode & 0o777 == 0o600
    agent.open_to_others()
    words = [PYTHON, "-c", AS_NOBODY, str(sock.parent)]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(words, capture_output=True, timeout=180))
    assert b"PermissionError" in done.stderr
    # Even where the mode would let them in: the kernel says who asks.
    sock.chmod(0o666)
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(words, capture_output=True, timeout=180))
    assert done.stdout == b"b''\n", done.stderr.decode()
