"""A shell beside a rank, joined to the user's terminal or to the pipes of a script, until it ends."""

from __future__ import annotations

import contextlib
import os
import signal

import anyio
import anyio.abc

from holdfast.cli.jobs.terminal import Keyboard, give, typed
from holdfast.cli.kit import exit_status
from holdfast.cli.kit.console import Console, OutputClosed
from holdfast.client import Client
from holdfast.errors import HoldfastError

_STDIN, _OUT, _ERR = 0, 1, 2


class ShellSession:
    """One shell, from its beginning to its exit status."""

    def __init__(self, client: Client, job_id: str, console: Console, *, on_terminal: bool) -> None:
        self._client = client
        self._job_id = job_id
        self._console = console
        self._on_terminal = on_terminal
        self._status: int | None = None
        self._problem = ""

    async def run(self, command: tuple[str, ...], rank: int) -> int:
        """The exit status, once the shell has ended and all that it wrote is shown. Raises what refuses it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_on_signal, tasks.cancel_scope)
            try:
                await self._read(command, rank, tasks)
            except OutputClosed:
                self._status = exit_status.OK
            finally:
                tasks.cancel_scope.cancel()
        if self._status is None:
            self._console.note(f"the shell has ended: {self._problem or 'the controller broke the call off'}")
        return exit_status.OUR_FAILURE if self._status is None else self._status

    async def _read(self, command: tuple[str, ...], rank: int, tasks: anyio.abc.TaskGroup) -> None:
        """Show what comes until the last answer. Raises what refused the shell."""
        size = os.get_terminal_size(_STDIN) if self._on_terminal else os.terminal_size((0, 0))
        term = os.environ.get("TERM", "") if self._on_terminal else ""
        answers = self._client.open_shell(
            self._job_id,
            command,
            rank=rank,
            terminal=self._on_terminal,
            rows=size.lines,
            columns=size.columns,
            term=term,
        )
        begun = False
        try:
            async with contextlib.aclosing(answers):
                async for answer in answers:
                    if answer.shell:
                        begun = True
                        await self._type(answer.shell, tasks)
                    if answer.data:
                        self._console.data(_ERR if answer.stderr else _OUT, answer.data)
                    if answer.HasField("exit_status"):
                        self._status = answer.exit_status
                    self._problem = answer.problem or self._problem
        except HoldfastError as error:
            if not begun:
                raise
            self._problem = error.message

    async def _type(self, name: str, tasks: anyio.abc.TaskGroup) -> None:
        async def write(data: bytes, rows: int = 0, columns: int = 0) -> int:
            return await self._client.write_shell(self._job_id, name, data, rows=rows, columns=columns)

        async def pass_on() -> None:
            while data := await typed():
                if not await give(data, write):
                    return
            with contextlib.suppress(HoldfastError):
                await self._client.write_shell(self._job_id, name, b"", end_of_input=True)

        def leave() -> None:
            self._problem = "you left it"
            tasks.cancel_scope.cancel()

        if self._on_terminal:
            await tasks.start(Keyboard(write, leave, whole=True).run)
        else:
            tasks.start_soon(pass_on)

    async def _end_on_signal(self, scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
            async for number in signals:
                self._status = 128 + number
                scope.cancel()
