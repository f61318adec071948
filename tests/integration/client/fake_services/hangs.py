"""The service of hangs, as tests of the client and of commands need it."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

from tests.integration.client.fake_services.history import ENDED, History

from holdfast.errors import NotFound, WrongState
from holdfast.v1 import hang_pb2, hang_pb2_grpc


class FakeHangs(History, hang_pb2_grpc.HangServiceServicer):
    """Answers the calls that the client makes from the history."""

    async def HoldJob(self, request: hang_pb2.HoldJobRequest, context: Any) -> hang_pb2.HoldJobResponse:
        await self.called("HoldJob", request, context)
        job = await self.job(request.id, context)
        if job.state in ENDED:
            return hang_pb2.HoldJobResponse(job=job)
        job.ClearField("held_until")
        if request.duration.ToNanoseconds():
            job.held_until.FromDatetime(datetime.datetime.now(datetime.UTC) + request.duration.ToTimedelta())
        return hang_pb2.HoldJobResponse(job=job)

    async def TakeStacks(
        self, request: hang_pb2.TakeStacksRequest, context: Any
    ) -> AsyncIterator[hang_pb2.TakeStacksResponse]:
        await self.called("TakeStacks", request, context)
        for answer in self.stacks[(await self.job(request.id, context)).id]:
            yield answer

    async def GetHangEvidence(
        self, request: hang_pb2.GetHangEvidenceRequest, context: Any
    ) -> AsyncIterator[hang_pb2.GetHangEvidenceResponse]:
        await self.called("GetHangEvidence", request, context)
        job = await self.job(request.id, context)
        if not 1 <= (number := request.number or len(job.hangs)) <= len(job.hangs):
            await self.refuse(NotFound(f"The job {job.id} has no hang {number}."), context)
        for kept in self.evidence[job.id, number]:
            yield kept

    async def RecordSamples(
        self, request: hang_pb2.RecordSamplesRequest, context: Any
    ) -> AsyncIterator[hang_pb2.RecordSamplesResponse]:
        """All there are; ends with the job."""
        await self.called("RecordSamples", request, context)
        job = await self.job(request.id, context)
        if job.state in ENDED:
            await self.refuse(WrongState(f"The job {job.id} has ended."), context)
        for answer in self.samples[job.id]:
            yield answer
        while job.state not in ENDED:
            await self.change.wait()
