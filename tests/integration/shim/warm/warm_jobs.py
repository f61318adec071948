"""Jobs with warm starts on one shim, whose waits are short."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Shim = Any
PYTHON = os.environ.get("WARM_PYTHON", sys.executable)
"""Of the programs."""
HOLD = "import os, time\nif os.environ['HOLDFAST_GENERATION'] == '1': time.sleep(600)\n"
HASTY = """
import sys
sys.path.append({folder!r})
from holdfast_agent.shim import shim, worker
from holdfast_agent.shim.warm import imports, parked_ranks, release, warm_starts
warm_starts.LOOK_EVERY_S = 0.25
warm_starts.QUIET_S = imports.QUIET_S = 0.3
{more}
shim.run(int(sys.argv[1]))
"""


class Job:
    """A command that is launched again and again; the first generation waits until it is stopped."""

    def __init__(self, shim: Shim, *argv: str, ranks: int = 1, **env: str) -> None:
        self.shim, self.argv, self.ranks, self.env = shim, argv, ranks, env
        self.cwd, self.python = str(shim.out), PYTHON
        self.fields: dict[str, object] = {}  # of each rank's order

    def launch(self, generation: int, *, warm: dict[str, object] | None = None, **fields: object) -> None:
        orders = []
        for rank in range(self.ranks):
            env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "RANK": str(rank), **self.env}
            env["HOLDFAST_GENERATION"] = str(generation)
            order = self.shim.rank(self.python, *self.argv, rank=rank, generation=generation, env=env)
            orders.append({**order, "cwd": self.cwd, **self.fields})
        if warm is not None:
            fields["warm"] = warm
        self.shim.launch(generation, *orders, **fields)

    def park(self, warm: dict[str, object] | None = None, **fields: object) -> dict[str, Any]:
        """Launches generation 1 and returns what is said once the next is prepared, or can't be."""
        self.launch(1, warm=warm or {}, **fields)
        message: dict[str, Any] = self.shim.until("warm")[-1]
        return message

    def stop(self, generation: int, *, another: bool) -> None:
        self.shim.send(op="stop", generation=generation, grace_s=0.0, reason="STOPPED", another_follows=another)
        self.shim.until("empty")

    def run(self, generation: int, *, warm: dict[str, object] | None) -> dict[int, tuple[int, str, str]]:
        """Each rank's wait status and output of a generation that ends by itself."""
        self.launch(generation, warm=warm)
        found: dict[int, tuple[int, str, str]] = {}
        was_warm = set()
        while len(found) < self.ranks:
            message = self.shim.receive()
            assert message is not None
            if message["ev"] == "started":
                was_warm.add(bool(message.get("warm")))
            if message["ev"] == "exited":
                rank = message["rank"]
                out, err = (
                    Path(f"{self.shim.out}/g{generation}.r{rank}.{end}").read_text() for end in ("out", "err")
                )
                found[rank] = message["status"], out, err
        assert was_warm == {warm is not None}
        self.stop(generation, another=False)
        return found

    def both(self) -> tuple[dict[int, tuple[int, str, str]], dict[int, tuple[int, str, str]]]:
        """What a warm generation does, and a cold one."""
        said = self.park()
        assert said["ranks"] == self.ranks, said
        self.stop(1, another=True)
        return self.run(2, warm={}), self.run(3, warm=None)


def package(shim: Shim, name: str, code: str) -> str:
    """An installed package, and the PYTHONPATH on which it is found."""
    folder = shim.out / "lib/site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    return str(folder)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    found = children(pid)
    for each in found:  # grows while it is walked
        found += children(each)
    return found


def parked(shim: Shim, ranks: int) -> tuple[int, list[int]]:
    """Pid of the keeper, and of the processes that it keeps."""
    keeper = children(shim.process.pid)[-1]
    found = children(keeper)
    assert len(found) == ranks
    return keeper, found


def gone(pids: list[int], wait_s: float = 20.0) -> bool:
    deadline = time.monotonic() + wait_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def waiting(hasty: Callable[..., Shim], ranks: int = 2) -> tuple[Shim, Job]:
    shim = hasty()
    job = Job(shim, "-c", HOLD + "time.sleep(600)", ranks=ranks)
    assert job.park()["ranks"] == ranks
    return shim, job


def launched(job: Job, generation: int = 2, **fields: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """What is said of the warm start, and all messages up to the last exit."""
    job.stop(1, another=True)
    job.launch(generation, warm={}, **fields)
    said: list[dict[str, Any]] = []
    while sum(message["ev"] == "exited" for message in said) < job.ranks:
        message = job.shim.receive()
        assert message is not None
        said.append(message)
    return [message["message"] for message in said if message["ev"] == "warm"], said
