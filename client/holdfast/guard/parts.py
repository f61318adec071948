"""The daemons of one task: their files, how they are started, and started again when they die.

A daemon ends with its guard, whatever ends that. One that dies alone is started again with the same state, and finds
its ranks as they were.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.dev import daemons, plan, ports
from holdfast.errors import Unavailable
from holdfast.guard.allocation import Allocation
from holdfast.guard.trust import CLUSTER, SEED_VARIABLE, USER
from holdfast.settings import ClientSettings

AGAIN_S = 0.2
EARLY_S, EARLY_DEATHS = 10.0, 3
"""A daemon that dies so often within so short a time never works here."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A guard's scratch folder, which holds all that its daemons write."""

    path: Path

    def client(self, controller: str) -> ClientSettings:
        """Settings for calls to the controller as this guard's user."""
        return ClientSettings(controller, self.path / "ca.pem", self.path / "user.pem", self.path / "user.key")

    def write_controller(self, listen: str) -> None:
        """The controller's settings: only this guard's user may call it."""
        values = {
            "listen": listen,
            "cluster": CLUSTER,
            "admins": [USER],
            "state_dir": "controller",
            "ca": "ca.pem",
            "cert": "controller.pem",
            "key": "controller.key",
        }
        (self.path / "controller").mkdir(mode=0o700)
        _write_toml(self.path / "controller.toml", values)

    def write_agent(self, place: Allocation, controller: str, address: str, leash: int) -> None:
        """The agent's settings, and this process's environment, which its ranks inherit."""
        env = {name: value for name, value in os.environ.items() if name != SEED_VARIABLE}
        _write_private(self.path / "env.json", json.dumps(env))
        block = _worker_ports(place)
        values: dict[str, object] = {
            "controller": controller,
            "name": place.name,
            "state_dir": "state",
            "log_dir": "logs",
            "ca": "ca.pem",
            "cert": "agent.pem",
            "key": "agent.key",
            "address": address,
            "data_interface": "lo" if place.kind == "alone" else "",
            "port_range": f"{block[0]}-{block[-1]}",
            "env_file": "env.json",
            # A worker without GPUs goes to the host with most free slots: so worker i goes to task i.
            "max_workers": place.tasks - place.task,
            # The scheduler has bounded the task already, and knows nothing of what leaves it.
            "cgroups": False,
            "scopes": False,
            "private_shm": False,
            "self_check": 0,
            "allow_root_workers": os.geteuid() == 0,
            "guard.pid": leash,
            "guard.first_local_rank": 0,
            "guard.local_ranks": 0,
        }
        if place.local_tasks > 1:
            values |= {"guard.first_local_rank": place.local_task, "guard.local_ranks": place.local_tasks}
        _write_toml(self.path / "agent.toml", values)


def _worker_ports(place: Allocation) -> range:
    """Ports for the ranks of one task; no other task of the job on this machine has the same."""
    blocks = plan.blocks(ports.ephemeral_range(), ())
    # A guard that is alone starts anywhere: others on this machine may do so in the same moment.
    first = random.Random(place.job or None).randrange(len(blocks))
    return blocks[(first + place.local_task) % len(blocks)]


def controller_port() -> int:
    """A free port of this machine, outside of those that the kernel gives to outgoing connections."""
    found = plan.controller_ports(ports.ephemeral_range())
    random.SystemRandom().shuffle(found)
    return next(ports.free(found))


def _write_toml(path: Path, values: Mapping[str, object]) -> None:
    # What JSON writes for text, whole numbers, booleans and lists of them is valid TOML.
    _write_private(path, "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", errors="surrogateescape") as file:
        file.write(text)


class Leash:
    """A process that lives as long as the guard, or until it lets go: no worker outlives it (``[guard] pid``)."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Pid of the process, once it was started."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start it. It ends when its stdin does, and by no signal that a scheduler sends before SIGKILL."""
        self._process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            "trap '' HUP INT TERM USR1 USR2; exec cat",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )

    async def hold(self) -> None:
        """Raises ``Unavailable`` once it is gone, though it was not let go."""
        assert self._process is not None
        await self._process.wait()
        raise Unavailable("A process of the guard was killed, so its ranks have ended.")

    async def let_go(self) -> None:
        """End it, and with it what still runs."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


class Daemon:
    """The controller or the agent, kept running until ``end``."""

    def __init__(self, folder: Folder, kind: str) -> None:
        self._kind = kind
        self._log = folder.path / f"{kind}.log"
        self._command = (f"holdfast_{kind}", "--config", str(folder.path / f"{kind}.toml"))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Pid of the present process; 0 before the first."""
        return self._process.pid if self._process else 0

    async def keep(self) -> None:
        """Start it, and again when it has died. Raises ``Unavailable``, with its last words, where it never works."""
        deaths: list[float] = []
        while True:
            await self._start()
            assert self._process is not None
            status = await self._process.wait()
            deaths = [at for at in deaths if at > time.monotonic() - EARLY_S] + [time.monotonic()]
            if len(deaths) >= EARLY_DEATHS:
                tail = daemons.log_tail(self._log, 0)
                raise Unavailable(f"The {self._kind} ends as soon as it starts (status {status}).{tail}")
            await asyncio.sleep(AGAIN_S)

    async def _start(self) -> None:
        strange = (*daemons.RANK_MARKS, "HOLDFAST_CONFIG", SEED_VARIABLE)
        env = {key: value for key, value in os.environ.items() if key not in strange}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "holdfast.guard.tied",
                str(os.getpid()),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=env | _import_path(),
                start_new_session=True,
            )

    async def end(self) -> None:
        """Kill it: nothing that it keeps is needed any more."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return daemons.log_tail(self._log, 0)


def _import_path() -> dict[str, str]:
    """The user's PYTHONPATH without what counts from the current folder, which is another one there."""
    given = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(_absolute(given))} if given else {}


def _absolute(given: str) -> Iterator[str]:
    for part in given.split(os.pathsep):
        if part:
            yield os.path.abspath(part)
