"""The service of jobs, as tests of the client and of commands need it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tests.integration.client.fake_services.history import ENDED, STATES, History

from holdfast.errors import CursorExpired
from holdfast.v1 import job_pb2, job_pb2_grpc


class FakeJobs(History, job_pb2_grpc.JobServiceServicer):
    """Answers the calls that the client makes from the history."""

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: Any) -> job_pb2.CreateJobResponse:
        await self.called("CreateJob", request, context)
        if request.request_id in self.requests:
            return job_pb2.CreateJobResponse(job=self.jobs[self.requests[request.request_id]])
        job = self.add_job(request.job)
        self.requests[request.request_id] = job.id
        reply = job_pb2.CreateJobResponse(warnings=self.warnings)
        reply.job.CopyFrom(job)
        if self.on_create is not None:
            await self.on_create(job)
        return reply

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Any) -> job_pb2.GetJobResponse:
        await self.called("GetJob", request, context)
        return job_pb2.GetJobResponse(job=await self.job(request.id, context))

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Any) -> job_pb2.ListJobsResponse:
        await self.called("ListJobs", request, context)
        matching = [job for job in self.jobs.values() if _matches(job, request.filter)]
        size = request.page_size or 100
        if request.newest:
            return job_pb2.ListJobsResponse(jobs=[_bare(job) for job in matching[-size:]])
        start = int(request.page_token or 0)
        more = str(start + size) if start + size < len(matching) else ""
        page = [_bare(job) for job in matching[start : start + size]]
        return job_pb2.ListJobsResponse(jobs=page, next_page_token=more)

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: Any) -> job_pb2.CancelJobResponse:
        await self.called("CancelJob", request, context)
        job = await self.job(request.id, context)
        self.event(job.id, "CancelAsked", "cancelled by user", "CANCELLING")
        self.event(job.id, "JobCancelled", "cancelled by user", "CANCELLED")
        return job_pb2.CancelJobResponse(job=job)

    async def RestartJob(self, request: job_pb2.RestartJobRequest, context: Any) -> job_pb2.RestartJobResponse:
        await self.called("RestartJob", request, context)
        return job_pb2.RestartJobResponse(job=await self.job(request.id, context))

    async def PauseJob(self, request: job_pb2.PauseJobRequest, context: Any) -> job_pb2.PauseJobResponse:
        await self.called("PauseJob", request, context)
        job = await self.job(request.id, context)
        if job.state not in ENDED and self.pauses_at_once:
            self.event(job.id, "PauseRequested", "paused by user", "PAUSED")
        return job_pb2.PauseJobResponse(job=job)

    async def ResumeJob(self, request: job_pb2.ResumeJobRequest, context: Any) -> job_pb2.ResumeJobResponse:
        await self.called("ResumeJob", request, context)
        job = await self.job(request.id, context)
        if job.state == STATES.JOB_STATE_PAUSED:
            self.event(job.id, "JobResumed", "resumed by user", "QUEUED")
        return job_pb2.ResumeJobResponse(job=job)

    async def DeleteJob(self, request: job_pb2.DeleteJobRequest, context: Any) -> job_pb2.DeleteJobResponse:
        await self.called("DeleteJob", request, context)
        del self.jobs[(await self.job(request.id, context)).id]
        return job_pb2.DeleteJobResponse()

    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: Any
    ) -> AsyncIterator[job_pb2.WatchJobResponse]:
        await self.called("WatchJob", request, context)
        job = await self.job(request.id, context)
        if 0 < request.cursor < self.oldest_cursor:
            await self.refuse(CursorExpired("That history is gone.", fix="Watch again from 0."), context)
        self.open_streams += 1
        try:
            sent = 0
            while self.late_watch and not self.logs_read:
                await self.change.wait()
            while True:
                changed, ended = self.change, job.state in ENDED
                for event in self.events[job.id][sent:]:
                    if event.cursor > request.cursor:
                        yield event
                    sent += 1
                if ended:
                    return
                await changed.wait()
        finally:
            self.open_streams -= 1

    async def StreamLogs(
        self, request: job_pb2.StreamLogsRequest, context: Any
    ) -> AsyncIterator[job_pb2.StreamLogsResponse]:
        await self.called("StreamLogs", request, context)
        job = await self.job(request.id, context)
        generation = request.generation or max((c.generation for c in self.chunks[job.id]), default=1)
        self.open_streams += 1
        try:
            sent = 0
            while True:
                changed = self.change
                for chunk in self.chunks[job.id][sent:]:
                    if _wanted(chunk, request, generation):
                        yield chunk
                    sent += 1
                if not request.follow or job.state in ENDED:
                    return
                await changed.wait()
        finally:
            self.open_streams -= 1
            self.logs_read += 1
            self.changed()


def _bare(job: job_pb2.CustomJob) -> job_pb2.CustomJob:
    copy = job_pb2.CustomJob()
    copy.CopyFrom(job)
    copy.ClearField("workers")
    return copy


def _matches(job: job_pb2.CustomJob, filter: str) -> bool:
    return all(_holds(job, term) for term in filter.split(" AND ") if term)


def _holds(job: job_pb2.CustomJob, term: str) -> bool:
    key, _, value = term.partition(":" if term.startswith("id:") else "=")
    match key:
        case "active":
            return job.state not in ENDED
        case "id":
            return job.id.startswith(value.rstrip("*"))
        case "name":
            return job.display_name == value.strip('"')
        case _:
            return True


def _wanted(chunk: job_pb2.StreamLogsResponse, request: job_pb2.StreamLogsRequest, generation: int) -> bool:
    return (
        (not request.ranks or chunk.rank in request.ranks)
        and (not request.workers or chunk.worker in request.workers)
        and (chunk.generation >= generation if request.follow else chunk.generation == generation)
    )
