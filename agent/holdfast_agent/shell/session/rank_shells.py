"""Users' shells beside ranks, between the controller's stream and the keepers that the shims fork.

Each has a socket of its own, in its worker's directory until the keeper has it; what is said there is in
``holdfast_agent.shim.shells.rank_shell``. A shell ends with its reading, so with the connection to the controller too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio

from holdfast._daemon import log
from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shell.session.keepers import STARTED_WITHIN_S, keeper
from holdfast_agent.shell.shims.shims import Shims
from holdfast_agent.shim import terminal
from holdfast_agent.shim.keepers import frame

TAKEN_WITHIN_S = 5.0
"""A program that reads nothing makes its user wait so long for an answer, and ask again."""
KILLED = "it was ended with the ranks beside it"
FORBIDDEN = "its host's admin allows no shells there any more"

Passes = Callable[[bytes, bool], Awaitable[None]]
"""Sends what a shell wrote, to stderr or not, once there is credit for it."""


class Limits(NamedTuple):
    """Bounds that the host's admin sets."""

    most: int
    idle_s: float


class _Idle(Exception):
    pass


class _Shell:
    """One that is open now. Input that comes before its keeper waits for that."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None
        self.used_s = anyio.current_time()
        self.reason = KILLED

    def use(self) -> None:
        self.used_s = anyio.current_time()


class RankShells:
    """The shells on this host."""

    def __init__(self, workers: Path, shims: Shims, limits: Limits) -> None:
        self._workers = workers
        self._shims = shims
        self._limits = limits
        self._shells: dict[int, _Shell] = {}

    def change(self, limits: Limits) -> None:
        """Apply other limits from now on; where no shell is allowed any more, those that are open end."""
        self._limits = limits
        for shell in self._shells.values() if not limits.most else ():
            shell.reason = FORBIDDEN
            if shell.writer is not None:
                shell.writer.transport.abort()

    async def run(self, order: agent_pb2.OpenShell, passes: Passes) -> agent_pb2.TransferEnd:
        """Start a shell and pass on what it writes until it ends; cancelled, it is ended."""
        key = WorkerId(order.job_id, order.worker)
        if problem := self._refusal(key):
            return agent_pb2.TransferEnd(problem=problem)
        shell = self._shells[order.id] = _Shell()
        log.info("shell.opened", worker=str(key), generation=order.generation, rank=order.rank)
        end = agent_pb2.TransferEnd()
        try:
            async with keeper(self._workers, self._shims, key, _message(order)) as (reader, shell.writer):
                shell.begun.set()
                end = await self._copy(shell, reader, passes)
        except TimeoutError:
            end.problem = f"its worker's shim did not start it within {STARTED_WITHIN_S:g} s"
        except _Idle:
            limit = f"shell_idle = {self._limits.idle_s:g} s in agent.toml"
            end.problem = f"nothing was typed or written for as long as its host allows ({limit})"
        except OSError as error:
            end.problem = f"it can't be started: {error.strerror or error}"
        finally:
            shell.begun.set()
            del self._shells[order.id]
            log.info("shell.closed", worker=str(key), rank=order.rank, error=end.problem)
        return end

    def _refusal(self, key: WorkerId) -> str:
        if not self._limits.most:
            return "its host's admin allows no shells there (shells = 0 in agent.toml)"
        if len(self._shells) >= self._limits.most:
            return f"its host has {self._limits.most} shells open already, and its admin allows no more at a time"
        if not is_worker(key) or not self._shims.pid(key):
            return "nothing of the job runs on its host"
        if not self._shims.keeps_shells(key):
            return "the worker was started by an older release; a restart of the job allows it"
        return ""

    async def _copy(self, shell: _Shell, reader: asyncio.StreamReader, passes: Passes) -> agent_pb2.TransferEnd:
        """Pass output on until the keeper says how it ended. Raises ``_Idle``."""
        while True:
            try:
                kind, rest = await self._frame(shell, reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                return agent_pb2.TransferEnd(problem=shell.reason)
            shell.use()
            if kind == b"x":
                return agent_pb2.TransferEnd(exit_status=int(rest))
            if kind == b"p":
                return agent_pb2.TransferEnd(problem=rest.decode("utf-8", "replace"))
            await passes(rest, kind == b"r")

    async def _frame(self, shell: _Shell, reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
        while (left_s := shell.used_s + self._limits.idle_s - anyio.current_time()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    head = await reader.readexactly(terminal.HEAD)
                return head[:1], await reader.readexactly(int.from_bytes(head[1:], "big"))
        raise _Idle

    async def give(self, asked: agent_pb2.GiveInput) -> agent_pb2.InputTaken:
        """How many bytes were taken: all, or none while the program has too many that it has not read."""
        taken = agent_pb2.InputTaken(id=asked.id)
        shell = self._shells.get(asked.shell)
        if shell is not None:
            await shell.begun.wait()
        if shell is None or shell.writer is None or shell.writer.is_closing():
            taken.problem = "it has ended"
            return taken
        shell.use()
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await shell.writer.drain()
        except TimeoutError:
            return taken
        except ConnectionError:
            taken.problem = "it has ended"
            return taken
        if asked.rows and asked.columns:
            shell.writer.write(frame(b"w", terminal.window(asked.rows, asked.columns)))
        if asked.data:
            shell.writer.write(frame(b"d", asked.data))
            taken.bytes = len(asked.data)
        if asked.end_of_input:
            shell.writer.write(frame(b"e", b""))
        return taken


def _message(order: agent_pb2.OpenShell) -> dict[str, object]:
    """The order to a shim, without the keeper's socket."""
    return {
        "op": "shell",
        "generation": order.generation,
        "rank": order.rank,
        "argv": list(order.command),
        "terminal": order.terminal,
        "term": order.term,
        "rows": order.rows,
        "columns": order.columns,
    }
