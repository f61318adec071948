"""Runs the site's fence command for silent hosts, and has the core know what it has proven.

The command is an admin's, and the controller is its parent: it gets a session of its own, an environment that names
the host and nothing else, no input, and a time limit, after which it gets KILL, with all that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast._daemon import log
from holdfast.errors import HoldfastError
from holdfast_controller.core.access.audit import Entry, Trail
from holdfast_controller.core.step.actions import CallFence
from holdfast_controller.core.step.commands import FenceAsked, FenceFailed
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.config import FenceConfig
from holdfast_controller.shell.driver import Driver

BY = "fence command"
CALL = "HOLDFAST_CALL"
"""The variable of one call alone: another of the same host at the same time may be another controller's."""
AT_ONCE = 8
"""Commands that run at the same time; the others wait."""
KEPT_BYTES = 4096
"""Of the end of what it prints."""
_LEFT_S = 5.0
"""How long output is waited for once the command and its children are gone."""
_ROUNDS = 20
_ENVIRON_MOST = 65_536


@dataclass(frozen=True)
class Outcome:
    """How a command ended. ``said``: the last line that it printed, or why there is none."""

    proven: bool
    said: str


class Fencing:
    """Calls the command for each host that it is asked for."""

    def __init__(self, driver: Driver, audit: Audit, config: FenceConfig) -> None:
        self._driver, self._audit, self._config = driver, audit, config
        self._asked: asyncio.Queue[CallFence] = asyncio.Queue()

    def call(self, action: CallFence) -> None:
        """Have the command called; returns at once."""
        self._asked.put_nowait(action)

    async def run(self) -> None:
        """Call it until cancelled; what runs then is ended."""
        async with asyncio.TaskGroup() as calls:
            slots = asyncio.Semaphore(AT_ONCE)
            while True:
                action = await self._asked.get()
                calls.create_task(self._fence(action, slots))

    async def _fence(self, action: CallFence, slots: asyncio.Semaphore) -> None:
        async with slots:
            log.warning("fence.called", host=action.host, silent_s=round(action.silent_s, 1))
            found = await run(self._config.command, environment(action), self._config.timeout)
        outcome = "OK" if found.proven else "FAILED_PRECONDITION"
        entry = Entry(time.time(), "holdfast", "", BY, f"host/{action.host}", outcome, found.said)
        self._audit.write(entry, Trail.ADMINS)
        log.warning("fence.ended", host=action.host, proven=found.proven, said=found.said)
        if not found.proven:
            self._driver.feed(FenceFailed(action.host, found.said))
            return
        try:
            await self._driver.ask(lambda token: FenceAsked(token, BY, action.host, found.said))
        except HoldfastError as refused:
            log.warning("fence.refused", host=action.host, reason=str(refused))


def environment(action: CallFence) -> Mapping[str, str]:
    """The variables that tell the command of its host; ``run`` adds that of the call, and there are no others."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOLDFAST_HOST": action.host,
        "HOLDFAST_ADDRESS": action.address,
        "HOLDFAST_SILENT_S": f"{action.silent_s:.0f}",
        "HOLDFAST_DEADLINE": f"{action.until:.0f}",
    }


async def run(command: Sequence[str], env: Mapping[str, str], within_s: float) -> Outcome:
    """Run a command to its end, or for so long. Nothing that it started is left, in whichever session."""
    call = secrets.token_hex(16)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**env, CALL: call},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(False, f"{command[0]} can't be started: {error.strerror}")
    printed = _Printed()
    in_time = True
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(printed.read(process))
        try:
            async with asyncio.timeout(within_s):
                await _exited(process.pid)
        except TimeoutError:
            in_time = False
        finally:
            # Now, not once all is read: a child that keeps the output open would let the command seem to run on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.to_thread(_kill_all_with, f"{CALL}={call}".encode()))
        await asyncio.wait([reading], timeout=_LEFT_S)
        if not reading.done():  # a child that can't be killed has it open, for which wait() would wait too
            reading.cancel()
            process._transport.close()  # type: ignore[attr-defined]
    code = await process.wait()
    if not in_time:
        return Outcome(False, f"not done within {within_s:g} s{_last(printed.end)}")
    if code == 0:
        return Outcome(True, f"switched off by {command[0]}{_last(printed.end)}")
    how = f"exited with {code}" if code > 0 else f"was killed by signal {-code}"
    return Outcome(False, f"{command[0]} {how}{_last(printed.end)}")


class _Printed:
    """The end of what a command prints."""

    def __init__(self) -> None:
        self.end = b""

    async def read(self, process: asyncio.subprocess.Process) -> None:
        """Read until no process has the output open."""
        assert process.stdout is not None
        while piece := await process.stdout.read(KEPT_BYTES):
            self.end = (self.end + piece)[-KEPT_BYTES:]


async def _exited(pid: int) -> None:
    """Return once our child has exited, whichever process keeps its output open."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it is reaped already
    loop.add_reader(fd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _kill_all_with(mark: bytes) -> None:
    """Kill every process with this variable: a child that has left the command's session keeps it."""

    def is_marked(pid: str) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return mark in file.read(_ENVIRON_MOST).split(b"\0")
        except OSError:  # it has gone, or is another user's
            return False

    for _ in range(_ROUNDS):  # one that forks meanwhile is found in the next
        found = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_marked(pid)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(int(pid))
                try:
                    if is_marked(pid):
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                finally:
                    os.close(fd)
        time.sleep(0.05)


def _last(printed: bytes) -> str:
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
    return f": {one_line(lines[-1])[:200]}" if lines else ""
