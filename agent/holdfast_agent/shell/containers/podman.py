"""Containers by podman's command line: what an engine has to do for us, and no more.

An engine holds a container open; it starts nothing of the job's in it (``shim/container_namespace``).
Other engines, such as docker, differ in some options of ``hold`` only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import anyio

from holdfast_agent.shell.containers.mounts import Mount
from holdfast_agent.shell.shims.spawner import watch_exit

CALL_S = 120.0
"""A store that is busy, or a disk that is slow, makes podman wait."""
SAID_MAX_BYTES, LINE_CHARACTERS = 1 << 20, 500
HOLDER = "/run/holdfast-holder"
_FOR_OTHERS = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC")
"""The agent's own, from its service manager; podman would answer for it."""


class EngineFailed(Exception):
    """The engine refused, in its own words. ``no_room``: for want of disk."""

    @property
    def no_room(self) -> bool:
        """Whether the host's disk is full."""
        return "no space left" in str(self).lower()


@dataclass(frozen=True, slots=True)
class Image:
    """The command that an image runs by default, and its working directory."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A container as the engine knows it. ``pid``: what holds it open; 0 where nothing does."""

    id: str
    name: str
    pid: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Podman:
    """Calls of podman. ``program`` and ``init`` are paths; ``init`` is linked statically and waits for ever with -P."""

    program: str
    init: str

    async def image(self, uri: str) -> Image | None:
        """The host's image of this name; None where it would have to be pulled. Raises ``EngineFailed``."""
        if await self._fails("image", "exists", uri):
            return None
        config = json.loads(await self._call("image", "inspect", uri))[0].get("Config") or {}
        return Image(
            entrypoint=tuple(config.get("Entrypoint") or ()),
            command=tuple(config.get("Cmd") or ()),
            working_directory=config.get("WorkingDir") or "",
        )

    async def pull(self, uri: str, timeout_s: float) -> None:
        """Fetch an image. Raises ``EngineFailed`` with the registry's words. Ends with the call's cancellation."""
        await self._call("pull", "--quiet", uri, timeout_s=timeout_s)

    async def hold(
        self, name: str, uri: str, labels: Mapping[str, str], mounts: Sequence[Mount], gpus: Sequence[str]
    ) -> None:
        """Make a container and hold it open. Raises ``EngineFailed``.

        Network, IPC and names are the host's, and so are the ranks' processes. The limits are those of the process
        that holds it, which does nothing; ranks have the agent's.
        """
        holder = Mount(self.init, HOLDER, read_only=True)
        await self._call(
            "run",
            "--detach",
            "--pull=never",
            f"--name={name}",
            "--network=host",
            "--ipc=host",
            "--uts=host",
            "--cgroups=disabled",
            "--log-driver=none",
            "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=1024:1024",
            "--user=0:0",
            "--workdir=/",
            *(f"--label={key}={value}" for key, value in labels.items()),
            *(f"--mount={mount.option()}" for mount in (holder, *mounts)),
            *(f"--device=nvidia.com/gpu={uuid}" for uuid in gpus),
            f"--entrypoint={HOLDER}",
            uri,
            "-P",
        )

    async def find(self, name: str) -> Held | None:
        """A container; None where there is none of that name. Raises ``EngineFailed``."""
        if await self._fails("container", "exists", name):
            return None
        return _held(json.loads(await self._call("container", "inspect", name))[0])

    async def remove(self, name: str) -> None:
        """End what holds it, and remove it, if it is there. Raises ``EngineFailed``."""
        await self._call("rm", "--force", "--time=0", "--ignore", name)

    async def labelled(self, label: str, value: str) -> list[Held]:
        """All containers with this label, whether something holds them or not. Raises ``EngineFailed``."""
        filters = f"--filter=label={label}={value}"
        names = (await self._call("ps", "--all", "--quiet", "--no-trunc", filters)).split()
        if not names:
            return []
        return [_held(found) for found in json.loads(await self._call("container", "inspect", *names))]

    async def _fails(self, *args: str) -> bool:
        """Whether a question is answered with no. Raises ``EngineFailed`` where it isn't answered."""
        code, _, errors = await self._run(args, CALL_S)
        if code not in (0, 1):
            raise EngineFailed(_reason(errors, code))
        return code == 1

    async def _call(self, *args: str, timeout_s: float = CALL_S) -> str:
        code, output, errors = await self._run(args, timeout_s)
        if code:
            raise EngineFailed(_reason(errors, code))
        return output

    async def _run(self, args: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
        # Files and no pipes: the container's monitor may keep what it inherits open.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = _start([self.program, "--cgroup-manager=cgroupfs", *args], output, errors)
            except OSError as error:
                raise EngineFailed(f"{self.program} could not be started: {error.strerror}") from error
            ended = anyio.Event()
            try:
                watch_exit(process.pid, ended.set)
                with anyio.fail_after(timeout_s):
                    await ended.wait()
            except TimeoutError:
                raise EngineFailed(f"podman {args[0]} did not end within {timeout_s:g} s") from None
            except OSError as error:
                raise EngineFailed(f"podman can't be watched: {error.strerror}") from error
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
            return code, _text(output), _text(errors)


def _start(command: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Not by the event loop, which forks: gRPC's threads don't bear that."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in _FOR_OTHERS},
        start_new_session=True,
    )


def _held(found: Mapping[str, Any]) -> Held:
    state = found["State"]
    pid = int(state.get("Pid") or 0) if state.get("Running") else 0
    return Held(found["Id"], found["Name"], pid, (found.get("Config") or {}).get("Labels") or {})


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(SAID_MAX_BYTES).decode("utf-8", "replace")


def _reason(errors: str, code: int) -> str:
    """The last line of what it said, without its label."""
    lines = ["".join(c for c in line if c.isprintable()).strip() for line in errors.splitlines()]
    said = next((line for line in reversed(lines) if line), "")
    return said.removeprefix("Error: ")[:LINE_CHARACTERS].rstrip(".") or f"it failed with code {code}"
