"""Reads a rank's output from its job's archive, with the rights of the job's account, on any host that has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from holdfast._base.printable import one_line
from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.base.programs import How, Streamed, streamed
from holdfast_agent.shell.output import archive_copy
from holdfast_agent.shell.output.archive import archive_copy_program
from holdfast_agent.shell.output.log_reader import Wanted

ANSWERS_WITHIN_S = 20.0
"""For the first bytes: a file server may hang."""
READ_S = 86_400.0
"""For all of it: a reader may be slow."""


class NoArchive(Exception):
    """Nothing can be read; the text says why, and is empty where the host has no archive of it."""


class ArchivedStream:
    """One stream of one rank, as far as it was archived. ``changed_ms``: when that was, since the epoch."""

    def __init__(self, program: Streamed) -> None:
        self._program = program
        self.changed_ms = 0

    async def begin(self) -> None:
        """Wait for the first answer. Raises ``NoArchive``."""
        try:
            with anyio.fail_after(ANSWERS_WITHIN_S):
                self.changed_ms = int(await self._program.stdout.readuntil(b"\n"))
        except TimeoutError:
            raise NoArchive(f"the archive did not answer within {ANSWERS_WITHIN_S:g} s") from None
        except asyncio.IncompleteReadError:
            raise NoArchive(await self._problem()) from None

    async def piece(self) -> tuple[int, bytes]:
        """Offset and bytes of the next piece; no bytes at the end. Raises ``NoArchive``."""
        stdout, frame = self._program.stdout, archive_copy.FRAME
        try:
            offset, length = frame.unpack(await stdout.readexactly(frame.size))
            return offset, await stdout.readexactly(length)
        except asyncio.IncompleteReadError:
            if problem := await self._problem():
                raise NoArchive(problem) from None
            return 0, b""

    async def _problem(self) -> str:
        ran = await self._program.ended()
        if ran.how is How.NOT_STARTED:
            return f"the archive could not be opened: {ran.problem}"
        if ran.code in (0, archive_copy.MISSING):
            return ""
        said = one_line(ran.errors.decode("utf-8", "replace"), 300)
        return said or f"reading the archive {ran.problem or ran.failure}"


@asynccontextmanager
async def archived_stream(
    base: str, job: str, generation: int, name: str, wanted: Wanted, user: WorkerUser
) -> AsyncIterator[ArchivedStream]:
    """The stream, open. Raises ``NoArchive``."""
    rest = (wanted.tail_lines, wanted.since_ms, wanted.end)
    limits = [str(max(0, wanted.offset)), *("-" if each is None else str(each) for each in rest)]
    program = archive_copy_program(user, READ_S, "read", base, job, f"g{generation}", name, *limits)
    try:
        async with streamed(program) as running:
            stream = ArchivedStream(running)
            await stream.begin()
            yield stream
    except OSError as error:
        raise NoArchive(f"the archive could not be opened: {error.strerror}") from error
