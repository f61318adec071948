"""A controller for tests: real gRPC over real mutual TLS, and a history that the test writes by hand.

Longer than 400 lines because it answers every call of every service, a few lines each, from one state.
"""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import grpc
import trustme
from google.protobuf import struct_pb2

from holdfast._base import rpc_status
from holdfast._security import tls
from holdfast.errors import CursorExpired, HoldfastError, NotFound, WrongState
from holdfast.settings import ClientSettings
from holdfast.v1 import hang_pb2, hang_pb2_grpc, host_pb2, host_pb2_grpc, job_pb2, job_pb2_grpc

STATES = job_pb2.JobState
ENDED = frozenset(
    {STATES.JOB_STATE_SUCCEEDED, STATES.JOB_STATE_FAILED, STATES.JOB_STATE_CANCELLED, STATES.JOB_STATE_EXPIRED}
)


@dataclass(frozen=True)
class Pki:
    """PEM files of a throw-away cluster."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Pki:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        for name, identity in (("controller", tls.SERVER_NAME), ("user", "user@example.org")):
            cert = authority.issue_cert(identity)
            cert.private_key_pem.write_to_path(str(folder / f"{name}.key"))
            cert.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        return cls(folder)

    def files(self, name: str) -> tls.TlsFiles:
        return tls.TlsFiles(self.folder / "ca.pem", self.folder / f"{name}.pem", self.folder / f"{name}.key")


Event = job_pb2.JobEvent | None
_PLAIN = {"JobSubmitted": "submitted", "GangLaunched": "launched", "GangStarted": "started", "JobEnded": "ended"}


class FakeController(
    job_pb2_grpc.JobServiceServicer, host_pb2_grpc.HostServiceServicer, hang_pb2_grpc.HangServiceServicer
):
    """Answers from plain tables. ``on_create`` scripts what becomes of a job; ``failures`` are raised first."""

    def __init__(self, pki: Pki) -> None:
        self.pki = pki
        self.port = 0
        self.jobs: dict[str, job_pb2.CustomJob] = {}
        self.events: dict[str, list[job_pb2.WatchJobResponse]] = defaultdict(list)
        self.chunks: dict[str, list[job_pb2.StreamLogsResponse]] = defaultdict(list)
        self.hosts: dict[str, host_pb2.Host] = {}
        self.evidence: dict[tuple[str, int], list[hang_pb2.GetHangEvidenceResponse]] = defaultdict(list)
        self.stacks: dict[str, list[hang_pb2.TakeStacksResponse]] = defaultdict(list)
        self.samples: dict[str, list[hang_pb2.RecordSamplesResponse]] = defaultdict(list)
        self.calls: list[tuple[str, Any]] = []
        self.failures: list[HoldfastError] = []
        self.warnings: list[str] = []
        self.pauses_at_once = True
        self.on_create: Callable[[job_pb2.CustomJob], Awaitable[None]] | None = None
        self.oldest_cursor = 0
        self.delay_s = 0.0
        self.open_streams = 0
        self.logs_read = 0
        self.late_watch = False  # events come once a stream of output has been read to its end
        self._cursor = itertools.count(1)
        self._changed = anyio.Event()
        self._requests: dict[str, str] = {}

    # Its life

    async def start(self) -> None:
        self._server = grpc.aio.server()
        job_pb2_grpc.add_JobServiceServicer_to_server(self, self._server)
        host_pb2_grpc.add_HostServiceServicer_to_server(self, self._server)
        hang_pb2_grpc.add_HangServiceServicer_to_server(self, self._server)
        credentials = tls.server_credentials(self.pki.files("controller"))
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=None)

    def settings(self) -> ClientSettings:
        user = self.pki.files("user")
        return ClientSettings(f"127.0.0.1:{self.port}", user.ca, user.cert, user.key)

    def write_settings(self, path: Path) -> Path:
        path.write_text(
            f'controller = "127.0.0.1:{self.port}"\nca = "{self.pki.folder}/ca.pem"\n'
            f'cert = "{self.pki.folder}/user.pem"\nkey = "{self.pki.folder}/user.key"\n'
        )
        return path

    # What happens in it

    def changed(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def event(
        self, job_id: str, type: str, message: str, state: str | None = None, what: Event = None, **data: Any
    ) -> int:
        """``what`` is the event itself; for the types of ``_PLAIN`` it is an empty one of their kind."""
        job = self.jobs[job_id]
        if state is not None:
            job.state = STATES.Value(f"JOB_STATE_{state}")
        job.cursor = cursor = next(self._cursor)
        fields = struct_pb2.Struct()
        fields.update(data)
        event = job_pb2.WatchJobResponse(cursor=cursor, type=type, message=message, data=fields, state=job.state)
        plain: dict[str, Any] = {_PLAIN[type]: {}} if type in _PLAIN else {}
        event.event.CopyFrom(what or job_pb2.JobEvent(**plain))
        event.time.FromDatetime(datetime.datetime(2026, 11, 21, 4, 0, cursor % 60, tzinfo=datetime.UTC))
        self.events[job_id].append(event)
        self.changed()
        return cursor

    def write(
        self,
        job_id: str,
        data: bytes,
        *,
        worker: str = "workerpool0-0",
        rank: int = 0,
        generation: int = 1,
        err: bool = False,
    ) -> None:
        stream = job_pb2.LOG_STREAM_STDERR if err else job_pb2.LOG_STREAM_STDOUT
        same = [
            c
            for c in self.chunks[job_id]
            if (c.worker, c.rank, c.generation, c.stream) == (worker, rank, generation, stream)
        ]
        offset = same[-1].offset + len(same[-1].data) if same else 0
        self.chunks[job_id].append(
            job_pb2.StreamLogsResponse(
                worker=worker, rank=rank, generation=generation, stream=stream, offset=offset, data=data
            )
        )
        self.changed()

    # JobService

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: Any) -> job_pb2.CreateJobResponse:
        await self._called("CreateJob", request, context)
        if request.request_id in self._requests:
            return job_pb2.CreateJobResponse(job=self.jobs[self._requests[request.request_id]])
        job = self.add_job(request.job)
        self._requests[request.request_id] = job.id
        reply = job_pb2.CreateJobResponse(warnings=self.warnings)
        reply.job.CopyFrom(job)
        if self.on_create is not None:
            await self.on_create(job)
        return reply

    def add_job(self, given: job_pb2.CustomJob) -> job_pb2.CustomJob:
        job = job_pb2.CustomJob()
        job.CopyFrom(given)
        job.id = given.id or f"j{len(self.jobs) + 1}"
        job.state = given.state or STATES.JOB_STATE_QUEUED
        if not job.HasField("create_time"):
            first = datetime.datetime(2026, 11, 21, 4, tzinfo=datetime.UTC)
            job.create_time.FromDatetime(first + datetime.timedelta(seconds=len(self.jobs)))
        job.owner = "user"
        self.jobs[job.id] = job
        self.event(job.id, "JobSubmitted", "submitted")
        return job

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Any) -> job_pb2.GetJobResponse:
        await self._called("GetJob", request, context)
        return job_pb2.GetJobResponse(job=await self._job(request.id, context))

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Any) -> job_pb2.ListJobsResponse:
        await self._called("ListJobs", request, context)
        matching = [job for job in self.jobs.values() if _matches(job, request.filter)]
        size = request.page_size or 100
        if request.newest:
            return job_pb2.ListJobsResponse(jobs=[_bare(job) for job in matching[-size:]])
        start = int(request.page_token or 0)
        more = str(start + size) if start + size < len(matching) else ""
        page = [_bare(job) for job in matching[start : start + size]]
        return job_pb2.ListJobsResponse(jobs=page, next_page_token=more)

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: Any) -> job_pb2.CancelJobResponse:
        await self._called("CancelJob", request, context)
        job = await self._job(request.id, context)
        self.event(job.id, "CancelAsked", "cancelled by user", "CANCELLING")
        self.event(job.id, "JobCancelled", "cancelled by user", "CANCELLED")
        return job_pb2.CancelJobResponse(job=job)

    async def RestartJob(self, request: job_pb2.RestartJobRequest, context: Any) -> job_pb2.RestartJobResponse:
        await self._called("RestartJob", request, context)
        return job_pb2.RestartJobResponse(job=await self._job(request.id, context))

    async def PauseJob(self, request: job_pb2.PauseJobRequest, context: Any) -> job_pb2.PauseJobResponse:
        await self._called("PauseJob", request, context)
        job = await self._job(request.id, context)
        if job.state not in ENDED and self.pauses_at_once:
            self.event(job.id, "PauseRequested", "paused by user", "PAUSED")
        return job_pb2.PauseJobResponse(job=job)

    async def ResumeJob(self, request: job_pb2.ResumeJobRequest, context: Any) -> job_pb2.ResumeJobResponse:
        await self._called("ResumeJob", request, context)
        job = await self._job(request.id, context)
        if job.state == STATES.JOB_STATE_PAUSED:
            self.event(job.id, "JobResumed", "resumed by user", "QUEUED")
        return job_pb2.ResumeJobResponse(job=job)

    async def DeleteJob(self, request: job_pb2.DeleteJobRequest, context: Any) -> job_pb2.DeleteJobResponse:
        await self._called("DeleteJob", request, context)
        del self.jobs[(await self._job(request.id, context)).id]
        return job_pb2.DeleteJobResponse()

    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: Any
    ) -> AsyncIterator[job_pb2.WatchJobResponse]:
        await self._called("WatchJob", request, context)
        job = await self._job(request.id, context)
        if 0 < request.cursor < self.oldest_cursor:
            await self._refuse(CursorExpired("That history is gone.", fix="Watch again from 0."), context)
        self.open_streams += 1
        try:
            sent = 0
            while self.late_watch and not self.logs_read:
                await self._changed.wait()
            while True:
                changed, ended = self._changed, job.state in ENDED
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
        await self._called("StreamLogs", request, context)
        job = await self._job(request.id, context)
        generation = request.generation or max((c.generation for c in self.chunks[job.id]), default=1)
        self.open_streams += 1
        try:
            sent = 0
            while True:
                changed = self._changed
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

    # HostService

    async def ListHosts(self, request: host_pb2.ListHostsRequest, context: Any) -> host_pb2.ListHostsResponse:
        await self._called("ListHosts", request, context)
        return host_pb2.ListHostsResponse(hosts=list(self.hosts.values()))

    async def GetHost(self, request: host_pb2.GetHostRequest, context: Any) -> host_pb2.GetHostResponse:
        await self._called("GetHost", request, context)
        return host_pb2.GetHostResponse(host=await self._host(request.name, context))

    async def WatchHosts(
        self, request: host_pb2.WatchHostsRequest, context: Any
    ) -> AsyncIterator[host_pb2.WatchHostsResponse]:
        await self._called("WatchHosts", request, context)
        while True:
            changed = self._changed
            for host in self.hosts.values():
                yield host_pb2.WatchHostsResponse(host=host)
            await changed.wait()

    async def Cordon(self, request: host_pb2.CordonRequest, context: Any) -> host_pb2.CordonResponse:
        await self._called("Cordon", request, context)
        host = await self._host(request.name, context)
        host.cordoned, host.cordon_reason = True, request.reason
        return host_pb2.CordonResponse(host=host)

    async def Uncordon(self, request: host_pb2.UncordonRequest, context: Any) -> host_pb2.UncordonResponse:
        await self._called("Uncordon", request, context)
        host = await self._host(request.name, context)
        host.cordoned, host.cordon_reason = False, ""
        return host_pb2.UncordonResponse(host=host)

    async def Drain(self, request: host_pb2.DrainRequest, context: Any) -> host_pb2.DrainResponse:
        await self._called("Drain", request, context)
        host = await self._host(request.name, context)
        host.cordoned = host.draining = True
        host.cordon_reason = request.reason
        if request.HasField("deadline"):
            host.drain_deadline.FromDatetime(datetime.datetime.now(datetime.UTC) + request.deadline.ToTimedelta())
        return host_pb2.DrainResponse(host=host)

    async def FenceHost(self, request: host_pb2.FenceHostRequest, context: Any) -> host_pb2.FenceHostResponse:
        await self._called("FenceHost", request, context)
        host = await self._host(request.name, context)
        host.ClearField("job_ids")
        host.workers = 0
        return host_pb2.FenceHostResponse(host=host)

    # HangService

    async def HoldJob(self, request: hang_pb2.HoldJobRequest, context: Any) -> hang_pb2.HoldJobResponse:
        await self._called("HoldJob", request, context)
        job = await self._job(request.id, context)
        if job.state in ENDED:
            return hang_pb2.HoldJobResponse(job=job)
        job.ClearField("held_until")
        if request.duration.ToNanoseconds():
            job.held_until.FromDatetime(datetime.datetime.now(datetime.UTC) + request.duration.ToTimedelta())
        return hang_pb2.HoldJobResponse(job=job)

    async def TakeStacks(
        self, request: hang_pb2.TakeStacksRequest, context: Any
    ) -> AsyncIterator[hang_pb2.TakeStacksResponse]:
        await self._called("TakeStacks", request, context)
        for answer in self.stacks[(await self._job(request.id, context)).id]:
            yield answer

    async def GetHangEvidence(
        self, request: hang_pb2.GetHangEvidenceRequest, context: Any
    ) -> AsyncIterator[hang_pb2.GetHangEvidenceResponse]:
        await self._called("GetHangEvidence", request, context)
        job = await self._job(request.id, context)
        if not 1 <= (number := request.number or len(job.hangs)) <= len(job.hangs):
            await self._refuse(NotFound(f"The job {job.id} has no hang {number}."), context)
        for kept in self.evidence[job.id, number]:
            yield kept

    async def RecordSamples(
        self, request: hang_pb2.RecordSamplesRequest, context: Any
    ) -> AsyncIterator[hang_pb2.RecordSamplesResponse]:
        """All there are; ends with the job."""
        await self._called("RecordSamples", request, context)
        job = await self._job(request.id, context)
        if job.state in ENDED:
            await self._refuse(WrongState(f"The job {job.id} has ended."), context)
        for answer in self.samples[job.id]:
            yield answer
        while job.state not in ENDED:
            await self._changed.wait()

    # Inside

    async def _called(self, method: str, request: Any, context: Any) -> None:
        self.calls.append((method, request))
        if self.delay_s:
            await anyio.sleep(self.delay_s)
        if self.failures:
            await self._refuse(self.failures.pop(0), context)

    async def _refuse(self, error: HoldfastError, context: Any) -> None:
        await context.abort_with_status(rpc_status.to_status(error))

    async def _job(self, job_id: str, context: Any) -> job_pb2.CustomJob:
        if job_id not in self.jobs:
            await self._refuse(NotFound(f"There is no job {job_id}.", fix="See `holdfast ps`."), context)
        return self.jobs[job_id]

    async def _host(self, name: str, context: Any) -> host_pb2.Host:
        if name not in self.hosts:
            await self._refuse(NotFound(f"There is no host {name}.", fix="See `holdfast host list`."), context)
        return self.hosts[name]


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
