"""The async SDK: ``async with Client(settings.load()) as client: job = await client.create_job(...)``.

Every call raises ``HoldfastError`` and nothing of gRPC's. Cancelling a call cancels it on the controller too.
Streams (``watch_job``, ``stream_logs``, ``watch_hosts``) outlive a controller that goes away: they wait, open
themselves again where they stood, and say so through ``on_link``. Leave one early with
``contextlib.aclosing``, or simply drop it: the call behind it is cancelled either way.

Longer than 400 lines because it has one method for each call, and people look for them in one place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

import anyio
import anyio.lowlevel
import grpc

from holdfast import renewal, tls
from holdfast.access_calls import AccessCalls
from holdfast.errors import HoldfastError
from holdfast.link import LinkCallback, Outage, is_away
from holdfast.log_position import LogPosition
from holdfast.rpc_status import from_rpc_error
from holdfast.settings import ClientSettings
from holdfast.v1 import bundle_pb2_grpc, hang_pb2, hang_pb2_grpc, host_pb2, host_pb2_grpc, job_pb2, job_pb2_grpc

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from holdfast.bundle_calls import Progress
    from holdfast.bundles.packing import Bundle
    from holdfast.hang_wire import WorkerEvidence
    from holdfast.spec import JobFile

Q = TypeVar("Q")
T = TypeVar("T")

CALL_TIMEOUT_S = 15.0
"""For a unary call, its retries included."""
EVIDENCE_TIMEOUT_S = 120.0
"""For all workers of a job; the controller gives each 40 s."""

TERMINAL = frozenset(
    {
        job_pb2.JOB_STATE_SUCCEEDED,
        job_pb2.JOB_STATE_FAILED,
        job_pb2.JOB_STATE_CANCELLED,
        job_pb2.JOB_STATE_EXPIRED,
        job_pb2.JOB_STATE_PARTIALLY_SUCCEEDED,
    }
)
"""States that a job never leaves."""

_IDEMPOTENT = {
    "holdfast.v1.JobService": (
        "CreateJob",
        "GetJob",
        "ListJobs",
        "CancelJob",
        "RestartJob",
        "PauseJob",
        "ResumeJob",
    ),
    "holdfast.v1.HostService": ("ListHosts", "GetHost", "Cordon", "Uncordon", "Drain", "FenceHost"),
    "holdfast.v1.HangService": ("HoldJob",),
    "holdfast.v1.BundleService": ("GetBundle",),
}
"""Reads, and whatever a request id makes happen once."""
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [
                {"service": service, "method": method} for service, names in _IDEMPOTENT.items() for method in names
            ],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "0.8s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
_OPTIONS = (
    ("grpc.ssl_target_name_override", tls.SERVER_NAME),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.enable_retries", 1),
    # Also the time one attempt to connect may take: a host that swallows packets is noticed soon.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 3_000),
    # A watcher that hears nothing for hours must still notice a dead link.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    # A channel of our own per client: nothing is shared with another one's certificate.
    ("grpc.use_local_subchannel_pool", 1),
)


class Client:
    """A connection to a cluster's controller, for use as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings

    async def __aenter__(self) -> Client:
        """Raises ``ConfigError`` when a certificate file can't be read; connects only with the first call."""
        files = tls.TlsFiles(ca=self.settings.ca, cert=self.settings.cert, key=self.settings.key)
        await renewal.on_use(self.settings.enrolment, files)
        credentials = tls.channel_credentials(files)
        self._channel = grpc.aio.secure_channel(self.settings.controller, credentials, options=_OPTIONS)
        # The async view of the stubs exists for type checkers only.
        self._jobs = cast("job_pb2_grpc.JobServiceAsyncStub", job_pb2_grpc.JobServiceStub(self._channel))
        self._hosts = cast("host_pb2_grpc.HostServiceAsyncStub", host_pb2_grpc.HostServiceStub(self._channel))
        self.access = AccessCalls(self._channel, self._unary)
        self._hangs = cast("hang_pb2_grpc.HangServiceAsyncStub", hang_pb2_grpc.HangServiceStub(self._channel))
        self._bundles = cast(
            "bundle_pb2_grpc.BundleServiceAsyncStub", bundle_pb2_grpc.BundleServiceStub(self._channel)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._channel.close(grace=None)

    # Jobs

    async def create_job(
        self,
        job: JobFile | job_pb2.CustomJob,
        *,
        request_id: str | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> job_pb2.CustomJob:
        """Submit a job; it survives power loss once this returns. The same ``request_id`` creates one job only.

        ``on_warning`` gets a sentence for each field that is kept but changes nothing on a bare host.
        """
        request = job_pb2.CreateJobRequest(request_id=request_id or _fresh_id(), job=as_proto(job))
        created = await self._unary(self._jobs.CreateJob(request, timeout=CALL_TIMEOUT_S))
        if on_warning is not None:
            for warning in created.warnings:
                on_warning(warning)
        return created.job

    async def get_job(self, job_id: str) -> job_pb2.CustomJob:
        """The job with its workers. Raises ``NotFound``."""
        call = self._jobs.GetJob(job_pb2.GetJobRequest(id=job_id), timeout=CALL_TIMEOUT_S)
        return (await self._unary(call)).job

    async def list_jobs(self, filter: str = "", *, page_size: int = 0) -> AsyncGenerator[job_pb2.CustomJob]:
        """All jobs that match, oldest first, without their workers; pages are fetched as they are needed."""
        token = ""
        while True:
            request = job_pb2.ListJobsRequest(filter=filter, page_size=page_size, page_token=token)
            page = await self._unary(self._jobs.ListJobs(request, timeout=CALL_TIMEOUT_S))
            for job in page.jobs:
                yield job
            token = page.next_page_token
            if not token:
                return

    async def newest_jobs(self, count: int, filter: str = "") -> list[job_pb2.CustomJob]:
        """The newest ``count`` (at most 1000) jobs that match, oldest first, without their workers."""
        request = job_pb2.ListJobsRequest(filter=filter, page_size=count, newest=True)
        return list((await self._unary(self._jobs.ListJobs(request, timeout=CALL_TIMEOUT_S))).jobs)

    async def cancel_job(self, job_id: str) -> job_pb2.CustomJob:
        """Ask for the job's end; returns before its workers are gone."""
        call = self._jobs.CancelJob(
            job_pb2.CancelJobRequest(id=job_id, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).job

    async def restart_job(self, job_id: str) -> job_pb2.CustomJob:
        """Stop the gang and launch its next generation on the same hosts. Once, however often the call is sent."""
        call = self._jobs.RestartJob(
            job_pb2.RestartJobRequest(id=job_id, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).job

    async def pause_job(self, job_id: str) -> job_pb2.CustomJob:
        """Stop the gang, free its hosts and keep the job until ``resume_job``; returns before that is done."""
        call = self._jobs.PauseJob(
            job_pb2.PauseJobRequest(id=job_id, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).job

    async def resume_job(self, job_id: str) -> job_pb2.CustomJob:
        """Queue a paused job again."""
        call = self._jobs.ResumeJob(
            job_pb2.ResumeJobRequest(id=job_id, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).job

    async def watch_job(
        self, job_id: str, cursor: int = 0, *, on_link: LinkCallback | None = None
    ) -> AsyncGenerator[job_pb2.WatchJobResponse]:
        """The job's events after ``cursor``, then live until it has ended. Misses and repeats none.

        Raises ``CursorExpired`` when the history at the cursor is gone, ``NotFound`` for an unknown job.
        """
        outage = Outage(on_link)
        state = job_pb2.JOB_STATE_UNSPECIFIED
        while True:
            try:
                if outage.ongoing:
                    await self.get_job(job_id)
                    outage.answered()
                request = job_pb2.WatchJobRequest(id=job_id, cursor=cursor)
                async with contextlib.aclosing(self._stream(self._jobs.WatchJob(request))) as events:
                    async for event in events:
                        outage.settled()
                        if event.cursor <= cursor:
                            continue
                        cursor, state = event.cursor, event.state
                        yield event
                if state in TERMINAL or await self._has_ended(job_id):
                    return
                await anyio.sleep(outage.failed(_ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    async def stream_logs(
        self,
        job_id: str,
        *,
        workers: Iterable[str] = (),
        ranks: Iterable[int] = (),
        generation: int = 0,
        follow: bool = False,
        tail_lines: int | None = None,
        since: Timestamp | None = None,
        on_link: LinkCallback | None = None,
    ) -> AsyncGenerator[job_pb2.StreamLogsResponse]:
        """Output of the job's ranks, byte for byte; with ``follow`` until the job has ended.

        ``generation`` 0 is the newest, and ``follow`` goes on through those after it. No ``workers`` or ``ranks``
        means all. Chunks with ``problem`` say that a stream can't be read to its end.
        """
        first = job_pb2.StreamLogsRequest(
            id=job_id,
            workers=workers,
            ranks=ranks,
            generation=generation,
            follow=follow,
            tail_lines=tail_lines,
            since=since,
        )
        position = LogPosition(first)
        outage = Outage(on_link)
        while True:
            try:
                if outage.ongoing:
                    await self.get_job(job_id)
                    outage.answered()
                call = self._jobs.StreamLogs(position.request())
                async with contextlib.aclosing(self._stream(call)) as chunks:
                    async for chunk in chunks:
                        outage.settled()
                        if fresh := position.accept(chunk):
                            yield fresh
                if not follow or await self._has_ended(job_id):
                    return
                await anyio.sleep(outage.failed(_ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    # Packaged code

    async def upload_bundle(
        self, bundle: Bundle, *, on_progress: Progress | None = None, on_link: LinkCallback | None = None
    ) -> bool:
        """Have the controller hold packaged code, for a job that names its digest. Whether it had to be sent.

        Raises ``StorageFull`` where there is no room for it.
        """
        from holdfast import bundle_calls

        return await bundle_calls.upload(self._bundles, bundle, self.settings.controller, on_progress, on_link)

    # Hangs

    async def hold_job(self, job_id: str, seconds: float) -> job_pb2.CustomJob:
        """Act on no hang of the job for so long, counted from now; 0 ends a hold. Hangs are still noticed."""
        request = hang_pb2.HoldJobRequest(id=job_id, request_id=_fresh_id())
        request.duration.FromNanoseconds(round(seconds * 1e9))
        return (await self._unary(self._hangs.HoldJob(request, timeout=CALL_TIMEOUT_S))).job

    async def take_stacks(self, job_id: str, native_ranks: Iterable[int] = ()) -> AsyncGenerator[WorkerEvidence]:
        """Stack dumps of every rank of a live job, worker by worker; native frames too of ``native_ranks``.

        A worker that can't be dumped comes with a problem. Raises ``WrongState`` where no rank runs.
        """
        from holdfast import hang_wire

        request = hang_pb2.TakeStacksRequest(id=job_id, native_ranks=native_ranks)
        call = self._hangs.TakeStacks(request, timeout=EVIDENCE_TIMEOUT_S)
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield hang_wire.received(answer.worker, answer.host, answer.content, answer.problem)

    async def hang_evidence(self, job_id: str, number: int = 0) -> AsyncGenerator[WorkerEvidence]:
        """What was kept of a hang, worker by worker; of the newest when ``number`` is 0. Raises ``NotFound``."""
        from holdfast import hang_wire

        request = hang_pb2.GetHangEvidenceRequest(id=job_id, number=number)
        call = self._hangs.GetHangEvidence(request, timeout=EVIDENCE_TIMEOUT_S)
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield hang_wire.received(answer.worker, "", answer.content)

    async def record_samples(self, job_id: str) -> AsyncGenerator[hang_pb2.RecordSamplesResponse]:
        """What agents sample of a job from now on, until it or the link ends. ``WrongState`` where it has ended."""
        call = self._hangs.RecordSamples(hang_pb2.RecordSamplesRequest(id=job_id))
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield answer

    # Hosts

    async def list_hosts(self) -> list[host_pb2.Host]:
        """All hosts, by name."""
        call = self._hosts.ListHosts(host_pb2.ListHostsRequest(), timeout=CALL_TIMEOUT_S)
        return list((await self._unary(call)).hosts)

    async def get_host(self, name: str) -> host_pb2.Host:
        """One host. Raises ``NotFound``."""
        call = self._hosts.GetHost(host_pb2.GetHostRequest(name=name), timeout=CALL_TIMEOUT_S)
        return (await self._unary(call)).host

    async def watch_hosts(self, *, on_link: LinkCallback | None = None) -> AsyncGenerator[host_pb2.Host]:
        """Every host at first, then each one whenever it changes; all of them again after an outage. Never ends."""
        outage = Outage(on_link)
        while True:
            try:
                call = self._hosts.WatchHosts(host_pb2.WatchHostsRequest())
                async with contextlib.aclosing(self._stream(call)) as changes:
                    async for change in changes:
                        outage.settled()
                        yield change.host
                await anyio.sleep(outage.failed(_ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    async def cordon(self, name: str, reason: str = "") -> host_pb2.Host:
        """The host takes no new work; what runs there goes on."""
        call = self._hosts.Cordon(
            host_pb2.CordonRequest(name=name, reason=reason, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).host

    async def uncordon(self, name: str) -> host_pb2.Host:
        """The host takes work again."""
        call = self._hosts.Uncordon(
            host_pb2.UncordonRequest(name=name, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).host

    async def drain(
        self, name: str, reason: str = "", *, deadline_s: float | None = None, at_checkpoint: bool = False
    ) -> host_pb2.Host:
        """The host takes no new work, and what still runs there ``deadline_s`` from now is moved off.

        Without a deadline that is at once. With ``at_checkpoint`` a job is moved as soon as it has saved one.
        ``uncordon`` ends it.
        """
        request = host_pb2.DrainRequest(
            name=name, reason=reason, at_checkpoint=at_checkpoint, request_id=_fresh_id()
        )
        if deadline_s is not None:
            request.deadline.FromNanoseconds(round(deadline_s * 1e9))
        return (await self._unary(self._hosts.Drain(request, timeout=CALL_TIMEOUT_S))).host

    async def fence_host(self, name: str, reason: str = "") -> host_pb2.Host:
        """Vouch that the host is off, or that nothing of its work runs any more: the work is placed elsewhere.

        Where that is not so, two copies of a job run at once.
        """
        call = self._hosts.FenceHost(
            host_pb2.FenceHostRequest(name=name, reason=reason, request_id=_fresh_id()), timeout=CALL_TIMEOUT_S
        )
        return (await self._unary(call)).host

    # The link

    async def _has_ended(self, job_id: str) -> bool:
        """Whether a stream that ended cleanly did so with its job; otherwise its controller was going away."""
        return (await self.get_job(job_id)).state in TERMINAL

    async def _unary(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except asyncio.CancelledError:
            # gRPC raises a CancelledError of its own making, which no cancel scope takes for its own.
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, endpoint=self.settings.controller) from error

    async def _stream(self, call: grpc.aio.UnaryStreamCall[Q, T]) -> AsyncGenerator[T]:
        """The messages of one call, which is cancelled when the reader leaves."""
        try:
            async for message in call:
                yield message
        except asyncio.CancelledError:
            await anyio.lowlevel.checkpoint_if_cancelled()
            raise
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, endpoint=self.settings.controller) from error
        finally:
            call.cancel()

    async def _wait(self, outage: Outage, error: HoldfastError) -> None:
        """Sit out one failure of a stream; raises ``error`` when waiting is of no use."""
        if not is_away(error):
            raise error
        await anyio.sleep(outage.failed(error))


def as_proto(job: JobFile | job_pb2.CustomJob) -> job_pb2.CustomJob:
    """The message for a parsed job file; a message is returned as it is."""
    if isinstance(job, job_pb2.CustomJob):
        return job
    # Not at the top: the spec brings pydantic along, which most callers don't need.
    from holdfast import spec

    return spec.job_to_proto(job)


def _fresh_id() -> str:
    """For one call of the caller's, however often it is sent: it is acted on once."""
    return uuid.uuid4().hex


def _ended_early() -> HoldfastError:
    return HoldfastError("The controller ended the stream before the job had ended.")
