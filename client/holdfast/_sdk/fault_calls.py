"""The SDK's call for faults that are injected on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._sdk.transport import Calling
from holdfast.v1 import job_pb2

if TYPE_CHECKING:
    from holdfast.v1 import job_pb2_grpc


class FaultCalls(Calling):
    """A part of ``Client``."""

    _jobs: job_pb2_grpc.JobServiceAsyncStub

    async def inject_fault(
        self, job_id: str, fault: str, rank: int, *, seconds: float = 0.0, speed_percent: int = 0
    ) -> job_pb2.CustomJob:
        """Put a fault into a rank, for so long: kill, stop, slow, disk or net. Returns once it is there.

        ``kill`` takes no seconds, and ``slow`` alone a speed. Raises ``Denied`` where the job's project allows none,
        and ``WrongState`` with the host's reason where it can't be done there.
        """
        kind = job_pb2.FaultKind.Value(f"FAULT_KIND_{fault.upper()}")
        request = job_pb2.InjectFaultRequest(id=job_id, rank=rank, fault=kind, speed_percent=speed_percent)
        if seconds:
            request.duration.FromNanoseconds(round(seconds * 1e9))
        return (await self._unary(self._jobs.InjectFault, request)).job
