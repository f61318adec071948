"""Shims come from a template: as good as started one by one, and never dependent on it or on the agent."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast_agent.shell.shims.spawner import SPARES, Fresh, Spawner

PATIENCE_S = 180.0


@pytest.fixture
async def spawner(tmp_path: Path) -> AsyncIterator[Spawner]:
    made = Spawner(tmp_path / "shims.log")
    yield made
    made.close()


def say(shim: Fresh, **message: object) -> dict[str, object]:
    """The shim's answer."""
    shim.sock.settimeout(PATIENCE_S)
    shim.sock.sendall(json.dumps(message).encode() + b"\n")
    answer: dict[str, object] = json.loads(shim.sock.makefile("rb").readline())
    return answer


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gone(pid: int) -> None:
    """Wait until nothing is left of a process, not even a zombie."""
    deadline = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.01)


async def test_a_shim_says_its_own_pid_and_leads_its_session(spawner: Spawner, tmp_path: Path) -> None:
    shim = spawner.take()
    (tmp_path / "worker").mkdir()
    hello = say(shim, op="assign", dir=str(tmp_path / "worker"))
    assert (hello["ev"], hello["pid"], hello["phase"]) == ("hello", shim.pid, "idle")
    assert os.getsid(shim.pid) == os.getpgid(shim.pid) == shim.pid
    shim.sock.close()
    os.kill(shim.pid, signal.SIGKILL)
    gone(shim.pid)


async def test_no_shim_holds_a_descriptor_of_another(spawner: Spawner) -> None:
    first, second = spawner.take(), spawner.take()
    first.sock.close()
    gone(first.pid)
    second.sock.close()
    gone(second.pid)


async def test_a_shim_that_has_quit_leaves_no_zombie(spawner: Spawner, tmp_path: Path) -> None:
    shim = spawner.take()
    (tmp_path / "worker").mkdir()
    say(shim, op="assign", dir=str(tmp_path / "worker"))
    shim.sock.sendall(b'{"op":"quit"}\n')
    assert shim.sock.recv(1) == b""
    gone(shim.pid)
    shim.sock.close()


async def test_spare_shims_end_with_the_agent_and_assigned_ones_do_not(tmp_path: Path) -> None:
    spawner = Spawner(tmp_path / "shims.log")
    assigned, spare = spawner.take(), spawner.take()
    (tmp_path / "worker").mkdir()
    say(assigned, op="assign", dir=str(tmp_path / "worker"))
    template = parent(assigned.pid)
    spawner.close()
    spare.sock.close()
    assigned.sock.close()
    gone(template)
    gone(spare.pid)
    assert parent(assigned.pid) != template
    os.kill(assigned.pid, signal.SIGKILL)
    gone(assigned.pid)


async def test_a_template_that_was_killed_is_started_again(spawner: Spawner) -> None:
    first = spawner.take()
    os.kill(parent(first.pid), signal.SIGKILL)
    second = spawner.take()
    assert parent(second.pid) != parent(first.pid)
    for shim in (first, second):
        shim.sock.close()
        gone(shim.pid)


async def test_a_spare_that_died_is_not_handed_out(spawner: Spawner) -> None:
    spawner.warm()
    spares = [spare.pid for spare in spawner._spares]
    assert len(spares) == SPARES
    for pid in spares:
        os.kill(pid, signal.SIGKILL)
        gone(pid)
    shim = spawner.take()
    assert shim.pid not in spares
    shim.sock.close()
    gone(shim.pid)


async def test_a_host_of_one_worker_keeps_no_shim_beside_it(tmp_path: Path) -> None:
    spawner = Spawner(tmp_path / "shims.log", single=True)
    spawner.warm()
    (spare,) = [each.pid for each in spawner._spares]

    taken = spawner.take()

    assert taken.pid == spare
    assert spawner._spares == [] and spawner._refilling is None
    another = spawner.take()
    for shim in (taken, another):
        shim.sock.close()
        gone(shim.pid)
    spawner.close()
