"""The daemons of one task: their files, how they are started, and started again when they die.

Importing this is quick; what is slow to import is so only once the daemons load beside it.

A daemon ends with its guard, whatever ends that. One that dies alone is started again with the same state, and finds
its ranks as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import anyio

from holdfast._base import umask
from holdfast._base.dataclass import dataclass
from holdfast.errors import Unavailable
from holdfast.guard import spares, tied
from holdfast.guard.allocation import SEED_VARIABLE, Allocation
from holdfast.guard.certificates import CLUSTER, USER
from holdfast.settings import ClientSettings

LOOK_S = 0.02
DISK_FREE_MB, LOG_LIMIT_MB = 16, 256
"""Room that scratch must have, and the most that a stream of a rank takes of it; the launcher has a copy."""
_LIMITS = ("checks.nofile", "checks.nproc", "checks.stack_kb", "checks.memlock_kb", "checks.shm_free_mb")
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

    def controller(self, listen: str, *, with_spares: bool) -> str:
        """The controller's settings, in a folder made for it: only this guard's user may call it.

        ``with_spares``, a host that is silent is given up soon, since another waits to take its place.
        """
        values: dict[str, object] = {
            "listen": listen,
            "cluster": CLUSTER,
            "admins": [USER],
            "state_dir": "controller",
            "ca": "ca.pem",
            "cert": "controller.pem",
            "key": "controller.key",
            # No other host could take over, and a task whose host is cut off ends by itself: shims need ask no one.
            "disconnect_policy": "KEEP",
        }
        if with_spares:
            values |= spares.settings()
        (self.path / "controller").mkdir(mode=0o700)
        return _toml(values)

    def agent(self, place: Allocation, controller: str, address: str, leash: int) -> str:
        """The agent's settings, beside which this process's environment is written, which its ranks inherit."""
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
            "umask": f"{umask.current():03o}",
            # One worker for each task, worker i for task i as long as that is there.
            "max_workers": 1,
            "guard.turn": place.tasks - place.task,
            # The scheduler has bounded the task already, and knows nothing of what leaves it.
            "cgroups": False,
            "scopes": False,
            "private_shm": False,
            "self_check": 0,
            # What is allowed to a task is enough for its program without a guard; the daemons say what they need.
            **dict.fromkeys(_LIMITS, 0),
            # A pod's scratch may be a small memory; a disk that fills costs output, not the work.
            "checks.disk_free_mb": DISK_FREE_MB,
            "log_limit_mb": max(1, min(LOG_LIMIT_MB, (shutil.disk_usage(self.path).free >> 20) // 8)),
            "allow_root_workers": os.geteuid() == 0,
            "guard.pid": leash,
            "guard.first_local_rank": 0,
            "guard.local_ranks": 0,
        }
        if place.local_tasks > 1:
            values |= {"guard.first_local_rank": place.local_task, "guard.local_ranks": place.local_tasks}
        return _toml(values)


def _worker_ports(place: Allocation) -> range:
    """Ports for the ranks of one task; no other task of the job on this machine has the same."""
    from holdfast.dev import plan, ports

    blocks = plan.blocks(ports.ephemeral_range(), ())
    # A guard that is alone starts anywhere: others on this machine may do so in the same moment.
    first = random.Random(place.job or None).randrange(len(blocks))
    return blocks[(first + place.local_task) % len(blocks)]


class ControllerPort(contextlib.ExitStack):
    """A port on which only a controller of ours can listen until the block ends: no other start is given it."""

    def take(self) -> int:
        """The port, outside of those that the kernel gives to outgoing connections. Raises ``Unavailable``."""
        from holdfast.dev import plan, ports

        reserved = self.enter_context(ports.Reserved())
        found = plan.controller_ports(ports.ephemeral_range())
        random.SystemRandom().shuffle(found)
        for port in found:
            if reserved.take([port]):
                return port
        raise Unavailable("No port is free for the controller.", fix="End something that listens on 7000 to 9999.")


def _toml(values: Mapping[str, object]) -> str:
    # What JSON writes for text, whole numbers, booleans and lists of them is valid TOML.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


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
            # Nothing but the shell itself: PATH is the user's, and may lead to no program of the system's.
            "trap '' HUP INT TERM USR1 USR2; while read -r _; do :; done",
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
    """The controller or the agent, kept running until the block ends.

    It is started before its settings are known, since loading it takes longest: they come through a named pipe, which
    a daemon opens only once it has loaded. A file takes the place of the pipe for those that are started later.
    """

    def __init__(self, folder: Folder, kind: str) -> None:
        self._kind = kind
        self._log = folder.path / f"{kind}.log"
        self._settings = folder.path / f"{kind}.toml"
        self._said = 0
        """The bytes of its log that are of earlier processes."""
        self._process: subprocess.Popen[bytes] | tied.Forked | None = None

    def __enter__(self) -> Self:
        """Make the pipe."""
        os.mkfifo(self._settings, 0o600)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it: nothing that it keeps is needed any more."""
        self.end()

    async def keep(self, settings: str) -> None:
        """Give it its settings, and start it again when it has died.

        Raises ``Unavailable``, with its last words, where it never works.
        """
        await self._give(settings)
        deaths: list[float] = []
        while True:
            status = await self._ended()
            deaths = [at for at in deaths if at > time.monotonic() - EARLY_S] + [time.monotonic()]
            if len(deaths) >= EARLY_DEATHS:
                from holdfast.dev import daemons

                tail = daemons.log_tail(self._log, self._said)
                if error := tied.unloadable(tail):
                    raise error
                raise Unavailable(f"The {self._kind} ends as soon as it starts (status {status}).{tail}")
            await asyncio.sleep(AGAIN_S)
            self.start()

    async def _give(self, settings: str) -> None:
        """Put the file in the pipe's place, and pass the settings to the daemon that has opened the pipe."""
        assert self._process is not None
        file = self._settings.with_suffix(".new")
        _write_private(file, settings)
        pipe = -1
        while pipe < 0 and self._process.poll() is None:
            try:
                pipe = os.open(self._settings, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:  # no one reads there so far
                    raise
                await asyncio.sleep(LOOK_S)
        file.replace(self._settings)
        if pipe >= 0:
            with os.fdopen(pipe, "w") as writer, contextlib.suppress(BrokenPipeError):
                writer.write(settings)  # less than a pipe takes at once

    async def _ended(self) -> int:
        """Wait for its end; returns its status."""
        assert self._process is not None
        if self._process.poll() is None:  # else its pid may be another's by now
            ended = os.pidfd_open(self._process.pid)
            try:
                await anyio.wait_readable(ended)
            finally:
                os.close(ended)
        return self._process.wait()

    @property
    def pid(self) -> int:
        """Pid of the present process, once it was started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the daemon, which loads and then waits for its settings."""
        words = f"holdfast_{self._kind}", "--config", str(self._settings)
        with self._log.open("ab") as log:
            self._said = log.tell()
            if tied.is_alone():
                self._process = tied.Forked(log.fileno(), *words)
                return
            self._process = subprocess.Popen(
                tied.command(*words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=tied.environment(os.environ),
                start_new_session=True,
            )

    def end(self) -> None:
        """Kill the daemon, if it is still there."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
