"""Guards a command on hosts that are reached by ssh: one task on each, all started, watched and ended from here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from holdfast._base import umask
from holdfast.errors import ConfigError, HoldfastError, Unavailable
from holdfast.guard import connection, logins, remote, spares, trust
from holdfast.guard.allocation import Allocation
from holdfast.guard.connection import Connection
from holdfast.guard.logins import Login
from holdfast.guard.run import ENDING_SIGNALS, OUR_FAILURE, Request, answered, foreseen

OTHERS_S = 1.0
"""After a first host has failed: time for others that fail to be named with it."""
NAMED = 4
"""Hosts that can't start, of which each is reported by itself."""


def run(request: Request, hosts: Sequence[Login], options: Mapping[str, Any]) -> int:
    """Guard the command on ``hosts``; returns its exit status. Says on stderr what it can't do.

    Raises ``ConfigError``.
    """
    spares.check(len(hosts), request.spares)
    return anyio.run(_Launch(request, hosts, options).run)


class _Launch:
    def __init__(self, request: Request, hosts: Sequence[Login], options: Mapping[str, Any]) -> None:
        self._request, self._options = request, options
        self._connections = [Connection(login) for login in hosts]
        self._env = remote.shared_environment(os.environ)
        self._signal = 0
        self._lost: list[Connection] = []
        self._ordered = False
        self._output = anyio.Lock()

    async def run(self) -> int:
        """Start, watch, end; returns the exit status."""
        status = OUR_FAILURE
        with anyio.open_signal_receiver(*answered()) as signals:
            async with anyio.create_task_group() as watch:
                scope = anyio.CancelScope()
                watch.start_soon(self._obey, signals, scope)
                with scope:
                    status = await self._guarded()
                watch.cancel_scope.cancel()
        return 128 + self._signal if self._signal else status

    async def _obey(self, signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
        """Pass on what is the ranks', and the first signal that ends the job in order; a second one ends it at once."""
        async for number in signals:
            if number in ENDING_SIGNALS:
                if self._signal or not self._ordered:
                    scope.cancel()
                self._signal = self._signal or number
            await self._tell_all(number)

    async def _tell_all(self, number: int) -> None:
        if self._ordered:
            for each in self._connections:
                await each.signal(number)

    async def _guarded(self) -> int:
        try:
            async with anyio.create_task_group() as listening:
                try:
                    await self._start(listening)
                    await self._order()
                    async with anyio.create_task_group() as tasks:
                        for each in self._connections:
                            tasks.start_soon(self._follow, each)
                finally:
                    if not self._ordered or self._signal:
                        for each in self._connections:
                            each.abandon()
                    with anyio.CancelScope(shield=True):
                        for each in self._connections:
                            await each.hang_up()
        except BaseExceptionGroup as group:
            problems = [foreseen(group)]
        else:
            problems = [each.problem for each in self._connections if each.problem]
        return await self._without_guard(problems) if problems else self._status()

    async def _start(self, listening: anyio.abc.TaskGroup) -> None:
        """Return once all hosts have answered. Raises an error that names those that can't start, and what to do."""
        script = logins.first_script(sys.executable, os.getcwd(), os.environ.get("PYTHONPATH", ""))
        timeout_s = self._request.start_timeout_s
        with anyio.move_on_after(timeout_s) as patience:
            async with anyio.create_task_group() as group:
                for each in self._connections:
                    await each.open(timeout_s)
                    listening.start_soon(each.listen, self._write)
                    group.start_soon(self._hear, each, script, patience)
        if problems := [each.problem for each in self._connections if each.problem]:
            raise problems[0] if len(problems) == 1 else _together(problems)
        if silent := [each.login for each in self._connections if each.answer is None]:
            raise Unavailable(
                f"{', '.join(login.name for login in silent[:NAMED])}: no answer within {timeout_s:.0f} s.",
                fix=f"Try it by hand: ssh -o BatchMode=yes {silent[0].target} true",
            )

    async def _hear(self, host: Connection, script: bytes, patience: anyio.CancelScope) -> None:
        await host.send(script)
        try:
            host.answer = await host.first_words()
            if problem := logins.refusal(host.answer, sys.executable, os.getcwd(), time.time()):
                raise problem
        except HoldfastError as error:
            host.problem = error
            patience.deadline = min(patience.deadline, anyio.current_time() + OTHERS_S)

    async def _order(self) -> None:
        answers = [each.answer for each in self._connections if each.answer]
        seed = trust.new_seed().hex()
        job = f"guard-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"
        names = tuple(each.login.name for each in answers)
        first = logins.first_addresses(answers)
        self._ordered = True
        for index, each in enumerate(self._connections):
            place = Allocation("ssh", job, index, len(names), 0, 1, names[index], names, first)
            order = remote.Order(place, seed, self._env, os.getcwd(), dict(self._options), umask.current())
            await each.send(order.line())

    async def _follow(self, host: Connection) -> None:
        """Until the end of a host's task; where it can't start, or is lost, the others are ended too."""
        await host.follow(self._write)
        await host.hang_up()
        if host.status is None:
            if not host.problem and not self._signal:
                self._request.words.note(f"the connection to {host.login.name} is lost: {host.last_words()}")
            if host.problem or not self._spared(host):
                await self._tell_all(signal.SIGTERM)

    async def _write(self, descriptor: int, data: bytes) -> None:
        if data:
            async with self._output:
                await anyio.to_thread.run_sync(_write_all, descriptor, data)

    def _spared(self, host: Connection) -> bool:
        """Whether the job goes on without a host that is lost: not without the first, where its controller is."""
        self._lost.append(host)
        return host is not self._connections[0] and len(self._lost) <= self._request.spares

    def _status(self) -> int:
        """The exit status of the guilty task, unless a host was lost that no spare stands in for."""
        if len(self._lost) > self._request.spares or self._connections[0] in self._lost:
            return OUR_FAILURE
        ends = [each.status for each in self._connections if each.status is not None]
        return next((status for status in ends if status not in (0, OUR_FAILURE)), max(ends))

    async def _without_guard(self, problems: Sequence[HoldfastError]) -> int:
        """Say why there is none, and run the command bare if that is wanted; returns the exit status."""
        note, request = self._request.words.note, self._request
        for problem in problems[:NAMED]:
            note(" ".join(filter(None, (problem.message, problem.fix))))
        if not request.or_run or self._signal:
            return OUR_FAILURE
        note("the command runs without a guard: nothing is restarted, and no hang is seen")
        first = self._connections[0]
        address = first.answer.server if first.answer else ""
        statuses: dict[int, int] = {}
        async with anyio.create_task_group() as tasks:
            for index in range(len(self._connections)):
                tasks.start_soon(self._bare, index, address or first.login.host, statuses)
        return next((status for _, status in sorted(statuses.items()) if status), 0)

    async def _bare(self, index: int, address: str, statuses: dict[int, int]) -> None:
        login, request = self._connections[index].login, self._request
        script = logins.bare_script(
            request.command, self._env, os.getcwd(), index, len(self._connections), request.ranks_per_task, address
        )
        process = await anyio.open_process(
            ["ssh", *connection.OPTIONS, "--", login.target, logins.COMMAND],
            stdin=subprocess.PIPE,
            stdout=None,
            stderr=None,
            start_new_session=True,
        )
        assert process.stdin is not None
        self._ordered = False  # a signal ends this at once
        try:
            with contextlib.suppress(OSError, anyio.BrokenResourceError):
                await process.stdin.send(script)
            statuses[index] = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await process.stdin.aclose()
                await process.wait()


def _together(problems: Sequence[HoldfastError]) -> ConfigError:
    """Several hosts' problems as one."""
    texts = [" ".join(filter(None, (each.message, each.fix))) for each in problems]
    more = f" {len(texts) - NAMED} more hosts can't start." if len(texts) > NAMED else ""
    return ConfigError(" ".join(texts[:NAMED]) + more)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):  # its reader is gone, which is no reason to stop the work
        while view:
            view = view[os.write(descriptor, view) :]
