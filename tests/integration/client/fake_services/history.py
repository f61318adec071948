"""The history of a fake cluster, which the test writes by hand: jobs, hosts, events and output in plain tables."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from google.protobuf import struct_pb2

from holdfast._base import rpc_status
from holdfast.errors import HoldfastError, NotFound
from holdfast.v1 import hang_pb2, host_pb2, job_pb2

STATES = job_pb2.JobState
ENDED = frozenset(
    {STATES.JOB_STATE_SUCCEEDED, STATES.JOB_STATE_FAILED, STATES.JOB_STATE_CANCELLED, STATES.JOB_STATE_EXPIRED}
)
Event = job_pb2.JobEvent | None
_PLAIN = {"JobSubmitted": "submitted", "GangLaunched": "launched", "GangStarted": "started", "JobEnded": "ended"}


class History:
    """What has happened so far. ``on_create`` scripts what becomes of a job; ``failures`` are raised first."""

    def __init__(self) -> None:
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
        self.change = anyio.Event()
        self.requests: dict[str, str] = {}

    def changed(self) -> None:
        self.change.set()
        self.change = anyio.Event()

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

    # What every call does

    async def called(self, method: str, request: Any, context: Any) -> None:
        self.calls.append((method, request))
        if self.delay_s:
            await anyio.sleep(self.delay_s)
        if self.failures:
            await self.refuse(self.failures.pop(0), context)

    async def refuse(self, error: HoldfastError, context: Any) -> None:
        await context.abort_with_status(rpc_status.to_status(error))

    async def job(self, job_id: str, context: Any) -> job_pb2.CustomJob:
        if job_id not in self.jobs:
            await self.refuse(NotFound(f"There is no job {job_id}.", fix="See `holdfast ps`."), context)
        return self.jobs[job_id]

    async def host(self, name: str, context: Any) -> host_pb2.Host:
        if name not in self.hosts:
            await self.refuse(NotFound(f"There is no host {name}.", fix="See `holdfast host list`."), context)
        return self.hosts[name]
