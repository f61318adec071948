"""Containers by podman's command line: what an engine has to do for us, and no more.

An engine holds a container open; it starts nothing of the job's in it (``shim/container_namespace``).
Other engines, such as docker, differ in some options of ``hold`` only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import anyio

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._daemon import log
from holdfast_agent.shell.base import programs
from holdfast_agent.shell.base.programs import How, Program
from holdfast_agent.shell.containers.mounts import Mount

CALL_S = 120.0
"""A store that is busy, or a disk that is slow, makes podman wait."""
PULL_AGAIN_S = (5.0, 15.0, 40.0)
"""Pauses before a registry that could not be reached is asked again."""
CALLS_AT_ONCE = 32
LINE_CHARACTERS = 500
HOLDER = "/run/holdfast-holder"
_FOR_OTHERS = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC")
"""The agent's own, from its service manager; podman would answer for it."""


_MAY_PASS = (
    *("dial tcp", "no such host", "server misbehaving", "i/o timeout", "tls handshake timeout", "connection reset"),
    *("connection refused", "unexpected eof", "deadline exceeded", "toomanyrequests", "too many requests"),
    *("bad gateway", "service unavailable", "gateway timeout"),
)


class EngineFailed(Exception):
    """The engine refused, in its own words. ``no_room``: for want of disk."""

    @property
    def no_room(self) -> bool:
        """Whether the host's disk is full."""
        return "no space left" in str(self).lower()

    @property
    def may_pass(self) -> bool:
        """Whether a registry could not be reached, or was too busy: another try may find it."""
        said = str(self).lower()
        return any(words in said for words in _MAY_PASS)


class EngineSilent(EngineFailed):
    """The engine could not be started, or did not answer: that is no matter of what it was asked."""


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
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(CALLS_AT_ONCE))

    async def image(self, uri: str) -> Image | None:
        """The host's image of this name; None where it would have to be pulled. Raises ``EngineFailed``."""
        if await self._fails("image", "exists", "--", uri):
            return None
        found = _told(await self._call("image", "inspect", "--", uri))
        config = (found[0].get("Config") if found else None) or {}
        return Image(
            entrypoint=tuple(config.get("Entrypoint") or ()),
            command=tuple(config.get("Cmd") or ()),
            working_directory=config.get("WorkingDir") or "",
        )

    async def pull(self, uri: str, timeout_s: float) -> None:
        """Fetch an image, and try again after each pause while its registry can't be reached.

        Raises ``EngineFailed`` with the registry's words. Ends with the call's cancellation.
        """
        for pause_s in (*PULL_AGAIN_S, None):
            try:
                await self._call("pull", "--quiet", "--", uri, timeout_s=timeout_s)
            except EngineFailed as error:
                if pause_s is None or not error.may_pass:
                    raise
                log.info("image.pull_failed", image=uri, error=str(error), again_in_s=pause_s)
                await anyio.sleep(pause_s)
            else:
                return

    async def hold(
        self, name: str, uri: str, labels: Mapping[str, str], mounts: Sequence[Mount], gpus: Sequence[str]
    ) -> None:
        """Make a container and hold it open. Raises ``EngineFailed``.

        Network, IPC and names are the host's, and so are the ranks' processes. The limits are those of the process
        that holds it, which does nothing; ranks have the agent's. An image's health check would be run as root.
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
            "--no-healthcheck",
            "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=1024:1024",
            "--user=0:0",
            "--workdir=/",
            *(f"--label={key}={value}" for key, value in labels.items()),
            *(f"--mount={mount.option()}" for mount in (holder, *mounts)),
            *(f"--device=nvidia.com/gpu={uuid}" for uuid in gpus),
            f"--entrypoint={HOLDER}",
            "--",
            uri,
            "-P",
        )

    async def find(self, name: str) -> Held | None:
        """A container; None where there is none of that name. Raises ``EngineFailed``."""
        if await self._fails("container", "exists", name):
            return None
        found = _told(await self._call("container", "inspect", name))
        return _held(found[0]) if found else None

    async def remove(self, name: str) -> None:
        """End what holds it, and remove it with its image's volumes, if it is there. Raises ``EngineFailed``."""
        await self._call("rm", "--force", "--volumes", "--time=0", "--ignore", name)

    async def labelled(self, label: str, value: str) -> list[Held]:
        """All containers with this label, whether something holds them or not. Raises ``EngineFailed``."""
        filters = f"--filter=label={label}={value}"
        names = (await self._call("ps", "--all", "--quiet", "--no-trunc", filters)).split()
        if not names:
            return []
        return [_held(found) for found in _told(await self._call("container", "inspect", *names))]

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
        # A container's monitor outlives its call.
        ran = await programs.run_async(
            Program(
                [self.program, "--cgroup-manager=cgroupfs", *args],
                timeout_s,
                {name: value for name, value in os.environ.items() if name not in _FOR_OTHERS},
                may_gain=True,
                may_leave=True,
            ),
            self.threads,
        )
        if ran.how is How.NOT_STARTED:
            raise EngineSilent(f"{self.program} could not be started: {ran.problem}")
        if ran.code is None:
            slow_pull = args[0] == "pull" and ran.how is How.LATE
            raise (EngineFailed if slow_pull else EngineSilent)(f"podman {args[0]} {ran.problem}")
        return ran.code, ran.output.decode("utf-8", "replace"), ran.errors.decode("utf-8", "replace")


def _told(output: str) -> list[Mapping[str, Any]]:
    """The answer of an inspection. Raises ``EngineFailed`` where it is none."""
    try:
        found = json.loads(output)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise EngineFailed(f"podman answers {one_line(output, 60)!r} to an inspection")
    return found


def _held(found: Mapping[str, Any]) -> Held:
    state = found.get("State") or {}
    pid = int(state.get("Pid") or 0) if state.get("Running") else 0
    return Held(str(found.get("Id")), str(found.get("Name")), pid, (found.get("Config") or {}).get("Labels") or {})


def _reason(errors: str, code: int) -> str:
    """The last line of what it said, without its label."""
    lines = map(one_line, reversed(errors.splitlines()))
    said = next(filter(None, lines), "")
    return said.removeprefix("Error: ")[:LINE_CHARACTERS].rstrip(".") or f"it failed with code {code}"
