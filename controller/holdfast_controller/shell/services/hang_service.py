"""``HangService``: suspended actions, stack dumps and samples of live jobs, and stored evidence."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from holdfast._base.proto_values import seconds
from holdfast.errors import InvalidInput, NotFound, Violation, WrongState
from holdfast.v1 import agent_pb2, hang_pb2, hang_pb2_grpc
from holdfast_controller.core.model.gang import Member
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.commands import HoldAsked
from holdfast_controller.shell.calls.committed_views import committed_job, find_job
from holdfast_controller.shell.calls.rpc import Context, caller_name, once, streaming, unary
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.services.streams.read_samples import SampleReading
from holdfast_controller.shell.services.streams.transfers import Transfers

MAX_HOLD_S = 30 * 86_400.0


class HangService(hang_pb2_grpc.HangServiceServicer):
    """Serves stack dumps from hosts and stored evidence; decides nothing."""

    def __init__(self, driver: Driver, transfers: Transfers) -> None:
        self._driver = driver
        self._transfers = transfers

    @unary
    async def HoldJob(self, request: hang_pb2.HoldJobRequest, context: Context) -> hang_pb2.HoldJobResponse:
        by = caller_name(context)
        duration_s = seconds(request.duration)
        if not 0 <= duration_s <= MAX_HOLD_S:
            problem = f"{duration_s:.12g} s is out of range"
            raise InvalidInput([Violation("duration", problem, "use 0 (to end a hold) up to 30 days")])
        job_id = await self._driver.ask(
            once(by, request, lambda token: HoldAsked(token, by, request.id, duration_s))
        )
        return hang_pb2.HoldJobResponse(job=await committed_job(self._driver, job_id, by))

    @streaming
    async def TakeStacks(
        self, request: hang_pb2.TakeStacksRequest, context: Context
    ) -> AsyncGenerator[hang_pb2.TakeStacksResponse, None]:
        job = await find_job(self._driver, request.id)
        if job.terminal or not job.launched:
            fix = f"See what was kept: holdfast job hangs {job.id}" if job.terminal else "Wait until it runs."
            raise WrongState(f"The job {job.id} has no running ranks.", fix=fix)
        native = frozenset(request.native_ranks)
        by = caller_name(context)
        asked = [(member, self._examine(job, member, native, by)) for member in job.gang.members]
        for member, answer in asked:
            report = await asyncio.shield(answer)
            yield hang_pb2.TakeStacksResponse(
                worker=member.name,
                host=job.places[member.index].host,
                content=report.content,
                problem=report.problem,
            )

    @streaming
    async def RecordSamples(
        self, request: hang_pb2.RecordSamplesRequest, context: Context
    ) -> AsyncGenerator[hang_pb2.RecordSamplesResponse, None]:
        job = await find_job(self._driver, request.id)
        if job.terminal:
            raise WrongState(f"The job {job.id} has ended.", fix="Only what a live job does can be recorded.")
        reading = SampleReading(self._driver, self._transfers, job, caller_name(context))
        async with contextlib.aclosing(reading.answers()) as answers:
            async for answer in answers:
                yield answer

    def _examine(
        self, job: Job, member: Member, native: frozenset[int], by: str
    ) -> asyncio.Future[agent_pb2.EvidenceReport]:
        order = agent_pb2.TakeEvidence(
            job_id=job.id,
            generation=job.generation_of(member.index),
            worker=member.name,
            # Only the agent knows the ranks below a launcher, and it leaves out those that aren't its worker's.
            suspects=native if len(member.ranks) == 1 else native.intersection(member.ranks),
        )
        return self._transfers.examine(job.places[member.index].host, order, by)

    @streaming
    async def GetHangEvidence(
        self, request: hang_pb2.GetHangEvidenceRequest, context: Context
    ) -> AsyncGenerator[hang_pb2.GetHangEvidenceResponse, None]:
        job = await find_job(self._driver, request.id)
        newest = job.hangs[-1].number if job.hangs else 0
        number = request.number or newest
        if not 1 <= number <= newest:
            known = f"It has {newest}." if job.hangs else "None was noticed so far."
            raise NotFound(f"The job {job.id} has no hang {number}.", fix=known)
        await self._driver.settled()
        samples, dumps = await self._driver.attachments(job.id, number) if request.samples else ({}, {})
        for worker, content in await self._driver.evidence(job.id, number):
            yield hang_pb2.GetHangEvidenceResponse(
                worker=worker, content=content, samples=samples.get(worker, b""), dumps=dumps.get(worker, b"")
            )
