"""The SDK's calls for shells beside ranks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from holdfast._sdk.transport import Calling
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2_grpc


class ShellCalls(Calling):
    """A part of ``Client``."""

    _jobs: job_pb2_grpc.JobServiceAsyncStub

    async def open_shell(
        self,
        job_id: str,
        command: Sequence[str] = (),
        *,
        rank: int = 0,
        terminal: bool = False,
        rows: int = 0,
        columns: int = 0,
        term: str = "",
    ) -> AsyncGenerator[job_pb2.OpenShellResponse]:
        """Run a command, or a shell, beside a rank, as its account and in its place; what it writes.

        The first answer names the shell for ``write_shell``, the last says how it ended. It ends when this generator is
        closed, and when the link breaks. Raises ``WrongState`` where the job, its host or its state allow none, and
        ``Denied`` for another user's job.
        """
        request = job_pb2.OpenShellRequest(
            id=job_id, command=command, rank=rank, terminal=terminal, rows=rows, columns=columns, term=term
        )
        async with contextlib.aclosing(self._stream(self._jobs.OpenShell(request))) as answers:
            async for answer in answers:
                yield answer

    async def write_shell(
        self, job_id: str, shell: str, data: bytes, *, rows: int = 0, columns: int = 0, end_of_input: bool = False
    ) -> int:
        """Type into a shell; the bytes that were taken: none while its program does not read what it was given before.

        At most 32,000 bytes. Raises ``NotFound`` and ``WrongState`` once the shell has ended.
        """
        request = job_pb2.WriteShellRequest(
            id=job_id, shell=shell, data=data, rows=rows, columns=columns, end_of_input=end_of_input
        )
        return (await self._unary(self._jobs.WriteShell, request)).taken
