"""Users' input for ranks' terminals, put into the FIFO from which a shim gives it to the program."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import anyio

from holdfast._session.reports import WorkerId
from holdfast.v1 import agent_pb2
from holdfast_agent.shell.session.assignment_checks import is_worker
from holdfast_agent.shim import terminal

TAKEN_WITHIN_S = 5.0
"""A program that reads nothing makes its user wait so long for an answer, and ask again."""


class TerminalInput:
    """Writes into the FIFOs below ``workers``, the directory of all workers' state."""

    def __init__(self, workers: Path) -> None:
        self._workers = workers

    async def give(self, asked: agent_pb2.GiveInput) -> agent_pb2.InputTaken:
        """How many bytes were taken: all, or none while the program has too many that it has not read."""
        key = WorkerId(asked.job_id, asked.worker)
        taken = agent_pb2.InputTaken(id=asked.id)
        if not is_worker(key):
            taken.problem = f"{key} names no worker."
            return taken
        path = self._workers / key.job / key.worker / terminal.fifo(asked.generation, asked.rank)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            taken.problem = f"rank {asked.rank} has no terminal."
            return taken
        try:
            if not stat.S_ISFIFO(os.fstat(fd).st_mode):
                taken.problem = f"rank {asked.rank} has no terminal."
                return taken
            if asked.rows and asked.columns:
                await _write(fd, terminal.frame(b"w", terminal.window(asked.rows, asked.columns)))
            if asked.data and await _write(fd, terminal.frame(b"d", asked.data)):
                taken.bytes = len(asked.data)
        except (OSError, ValueError, OverflowError) as error:
            taken.problem = f"the terminal of rank {asked.rank} can't be written to: {error}."
        finally:
            os.close(fd)
        return taken


async def _write(fd: int, frame: bytes) -> bool:
    """Whether the frame went in, which is whole or not at all. Raises ``OSError``."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    with anyio.move_on_after(TAKEN_WITHIN_S):
        while True:
            try:
                os.write(fd, frame)
            except BlockingIOError:
                ready.clear()
                loop.add_writer(fd, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_writer(fd)
            else:
                return True
    return False
