"""Reads a rank's output from its job's archive, with the rights of the job's account, on any host that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

from holdfast_agent.core.launch.environment import WorkerUser
from holdfast_agent.shell.output import archive_copy
from holdfast_agent.shell.output.archive import become
from holdfast_agent.shell.output.log_reader import Wanted

ANSWERS_WITHIN_S = 20.0
"""For the first bytes: a file server may hang."""


class NoArchive(Exception):
    """Nothing can be read; the text says why, and is empty where the host has no archive of it."""


class ArchivedStream:
    """One stream of one rank, as far as it was archived. ``changed_ms``: when that was, since the epoch."""

    def __init__(self, process: Process, stdout: ByteReceiveStream) -> None:
        self._process = process
        self._stdout = BufferedByteReceiveStream(stdout)
        self.changed_ms = 0

    async def begin(self) -> None:
        """Wait for the first answer. Raises ``NoArchive``."""
        try:
            with anyio.fail_after(ANSWERS_WITHIN_S):
                self.changed_ms = int(await self._stdout.receive_until(b"\n", 32))
        except TimeoutError:
            raise NoArchive(f"the archive did not answer within {ANSWERS_WITHIN_S:g} s") from None
        except (anyio.IncompleteRead, anyio.EndOfStream):
            raise NoArchive(await self._problem()) from None

    async def piece(self) -> tuple[int, bytes]:
        """Offset and bytes of the next piece; no bytes at the end. Raises ``NoArchive``."""
        try:
            offset, length = archive_copy.FRAME.unpack(await self._stdout.receive_exactly(archive_copy.FRAME.size))
            return offset, await self._stdout.receive_exactly(length)
        except (anyio.IncompleteRead, anyio.EndOfStream):
            if problem := await self._problem():
                raise NoArchive(problem) from None
            return 0, b""

    async def _problem(self) -> str:
        code = await self._process.wait()
        if code in (0, archive_copy.MISSING):
            return ""
        assert self._process.stderr is not None
        said = b"".join([part async for part in self._process.stderr]).decode("utf-8", "replace").strip()
        return "".join(c for c in said if c.isprintable())[:300] or f"reading the archive ended with code {code}"


@asynccontextmanager
async def archived_stream(
    base: str, job: str, generation: int, name: str, wanted: Wanted, user: WorkerUser
) -> AsyncIterator[ArchivedStream]:
    """The stream, open. Raises ``NoArchive``."""
    program = [sys.executable, "-I", "-S", archive_copy.__file__, "read", base, job, f"g{generation}", name]
    rest = (wanted.tail_lines, wanted.since_ms)
    limits = [str(max(0, wanted.offset)), *("-" if each is None else str(each) for each in rest)]
    try:
        process = await anyio.open_process(
            [*become(user), *program, *limits],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
        )
    except OSError as error:
        raise NoArchive(f"the archive could not be opened: {error.strerror}") from error
    assert process.stdout is not None
    try:
        stream = ArchivedStream(process, process.stdout)
        await stream.begin()
        yield stream
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(ANSWERS_WITHIN_S, shield=True):
            await process.aclose()
