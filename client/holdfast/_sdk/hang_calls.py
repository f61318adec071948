"""The SDK's calls about hangs: holds, stacks, what was kept of a hang, and samples as they come."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast._sdk.transport import Calling, fresh_id
from holdfast.v1 import hang_pb2

if TYPE_CHECKING:
    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.v1 import hang_pb2_grpc, job_pb2

EVIDENCE_TIMEOUT_S = 120.0
"""For all workers of a job; the controller gives each 40 s."""


class HangCalls(Calling):
    """A part of ``Client``."""

    _hangs: hang_pb2_grpc.HangServiceAsyncStub

    async def hold_job(self, job_id: str, seconds: float) -> job_pb2.CustomJob:
        """Deprecated: the old name of ``suspend_hang_action``."""
        warnings.warn("hold_job is now suspend_hang_action", DeprecationWarning, stacklevel=2)
        return await self.suspend_hang_action(job_id, seconds)

    async def suspend_hang_action(self, job_id: str, seconds: float) -> job_pb2.CustomJob:
        """Act on no hang of the job for so long, counted from now; 0 ends that. Hangs are still noticed."""
        request = hang_pb2.HoldJobRequest(id=job_id, request_id=fresh_id())
        request.duration.FromNanoseconds(round(seconds * 1e9))
        return (await self._unary(self._hangs.HoldJob, request)).job

    async def take_stacks(self, job_id: str, native_ranks: Iterable[int] = ()) -> AsyncGenerator[WorkerEvidence]:
        """Stack dumps of every rank of a live job, worker by worker; native frames too of ``native_ranks``.

        A worker that can't be dumped comes with a problem. Raises ``WrongState`` where no rank runs.
        """
        from holdfast._session import hang_wire

        request = hang_pb2.TakeStacksRequest(id=job_id, native_ranks=native_ranks)
        call = self._hangs.TakeStacks(request, timeout=EVIDENCE_TIMEOUT_S)
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield hang_wire.received(answer.worker, answer.host, answer.content, answer.problem)

    async def hang_evidence(
        self, job_id: str, number: int = 0, *, samples: bool = False
    ) -> AsyncGenerator[WorkerEvidence]:
        """Evidence of a hang by worker; of the newest hang if ``number`` is 0. Raises ``NotFound``.

        ``samples``: with what was sampled in the quarter of an hour before, and dumps of flight recorders.
        """
        from holdfast._session import hang_wire

        request = hang_pb2.GetHangEvidenceRequest(id=job_id, number=number, samples=samples)
        call = self._hangs.GetHangEvidence(request, timeout=EVIDENCE_TIMEOUT_S)
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                found = hang_wire.received(answer.worker, "", answer.content)
                try:
                    dumps = hang_wire.unpack_dumps(answer.dumps)
                except ValueError as error:
                    dumps = {}
                    found = replace(found, problem=found.problem or f"its flight recorders can't be read: {error}")
                yield replace(found, samples=answer.samples, dumps=dumps)

    async def record_samples(self, job_id: str) -> AsyncGenerator[hang_pb2.RecordSamplesResponse]:
        """Samples of a job's last quarter of an hour, and those from now on, until it or the link ends.

        Raises ``WrongState`` if it has ended.
        """
        call = self._hangs.RecordSamples(hang_pb2.RecordSamplesRequest(id=job_id))
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield answer
