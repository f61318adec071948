"""The async SDK: ``async with Client(settings.load()) as client: job = await client.create_job(...)``.

Every call raises ``HoldfastError`` and nothing of gRPC's. Cancelling a call cancels it on the controller too.
Streams (``watch_job``, ``stream_logs``, ``watch_hosts``) outlive a controller that goes away: they wait, open
themselves again where they stood, and say so through ``on_link``. Leave one early with ``contextlib.aclosing``, or
drop it: the call behind it is cancelled either way.

Calls about jobs are here, those about hosts and hangs in the classes that ``Client`` is made of. Others are in
``client.access`` (users, admission, the audit log), ``secrets``, ``web``, ``schedules`` (templates too), ``quotas`` and
``reservations``. ``pack`` makes the ``Bundle`` for ``upload_bundle``; ``Secret`` wraps the value for ``secrets.set``.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncGenerator, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import anyio

from holdfast._base import addresses
from holdfast._base.proto_values import seconds, timestamp
from holdfast._base.secret import Secret
from holdfast._sdk.access_calls import AccessCalls, SecretCalls
from holdfast._sdk.channels import open_channel
from holdfast._sdk.fault_calls import FaultCalls
from holdfast._sdk.hang_calls import HangCalls
from holdfast._sdk.host_calls import HostCalls
from holdfast._sdk.list_calls import ListCalls
from holdfast._sdk.log_position import LogPosition
from holdfast._sdk.quota_calls import QuotaCalls
from holdfast._sdk.reconnect import LinkCallback, Outage
from holdfast._sdk.reservation_calls import ReservationCalls
from holdfast._sdk.schedule_calls import ScheduleCalls
from holdfast._sdk.shell_calls import ShellCalls
from holdfast._sdk.transport import ended_early, fresh_id
from holdfast._sdk.web_calls import WebCalls
from holdfast._security import renewal, tls
from holdfast.errors import HoldfastError
from holdfast.settings import ClientSettings
from holdfast.v1 import (
    bundle_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    hang_pb2_grpc,
    host_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
)

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from holdfast._sdk.bundle_calls import Progress
    from holdfast._session.hang_wire import WorkerEvidence
    from holdfast.bundles.packing import Bundle, pack
    from holdfast.spec import JobFile
    from holdfast.v1 import access_pb2

__all__ = [
    "TERMINAL",
    "AccessCalls",
    "Bundle",
    "Client",
    "LinkCallback",
    "Progress",
    "Secret",
    "SecretCalls",
    "WorkerEvidence",
    "as_proto",
    "pack",
]
_LAZY = {
    "Bundle": "holdfast.bundles.packing",
    "Progress": "holdfast._sdk.bundle_calls",
    "WorkerEvidence": "holdfast._session.hang_wire",
    "pack": "holdfast.bundles.packing",
}
"""Loaded when they are first asked for: most callers need none of them."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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


class Client(HostCalls, HangCalls, ListCalls, ShellCalls, FaultCalls):
    """A connection to a cluster's controller, for use as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings

    async def __aenter__(self) -> Client:
        """Raises ``ConfigError`` when a certificate file can't be read; connects only with the first call."""
        files = tls.TlsFiles(ca=self.settings.ca, cert=self.settings.cert, key=self.settings.key)
        await renewal.on_use(self.settings.enrolment, files, oidc=self.settings.oidc)
        credentials = tls.channel_credentials(files)
        target = await anyio.to_thread.run_sync(addresses.target, self.settings.controller)
        self._channel = open_channel(self.settings.controller, target, credentials)
        # The async view of the stubs exists for type checkers only.
        self._jobs = cast("job_pb2_grpc.JobServiceAsyncStub", job_pb2_grpc.JobServiceStub(self._channel))
        self._hosts = cast("host_pb2_grpc.HostServiceAsyncStub", host_pb2_grpc.HostServiceStub(self._channel))
        self.access = AccessCalls(self._channel, self.settings)
        self.secrets = SecretCalls(self._channel, self.settings)
        self.schedules = ScheduleCalls(self._channel, self.settings)
        self.quotas = QuotaCalls(self._channel, self.settings)
        self.reservations = ReservationCalls(self._channel, self.settings)
        self.web = WebCalls(self._channel, self.settings)
        self._hangs = cast("hang_pb2_grpc.HangServiceAsyncStub", hang_pb2_grpc.HangServiceStub(self._channel))
        self._cluster = cast(
            "cluster_pb2_grpc.ClusterServiceAsyncStub", cluster_pb2_grpc.ClusterServiceStub(self._channel)
        )
        self._bundles = cast(
            "bundle_pb2_grpc.BundleServiceAsyncStub", bundle_pb2_grpc.BundleServiceStub(self._channel)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._channel.close(grace=None)

    async def status(self) -> cluster_pb2.GetStatusResponse:
        """State of the cluster, and what needs attention; of jobs, only those that the caller may see."""
        return await self._unary(self._cluster.GetStatus, cluster_pb2.GetStatusRequest())

    async def watch_changes(self, cursor: int = 0) -> AsyncGenerator[cluster_pb2.WatchChangesResponse]:
        """Yield ids of jobs and names of hosts that have changed, until the connection ends."""
        call = self._cluster.WatchChanges(cluster_pb2.WatchChangesRequest(cursor=cursor))
        async with contextlib.aclosing(self._stream(call)) as answers:
            async for answer in answers:
                yield answer

    async def metrics(self, accept: str = "") -> cluster_pb2.GetMetricsResponse:
        """The controller's metrics, in the format that an HTTP Accept header asks for."""
        request = cluster_pb2.GetMetricsRequest(accept=accept)
        return await self._unary(self._cluster.GetMetrics, request)

    async def list_shares(self) -> cluster_pb2.ListSharesResponse:
        """How the projects that the caller may see stand in fair share."""
        return await self._unary(self._cluster.ListShares, cluster_pb2.ListSharesRequest())

    async def set_share(self, project: str, weight: float | None) -> None:
        """Give a project a weight in fair share, or none of its own. For admins."""
        request = cluster_pb2.SetShareRequest(project=project, weight=weight)
        await self._unary(self._cluster.SetShare, request)

    async def set_guarantee(self, project: str, gpus: int) -> str:
        """Guarantee a project so many GPUs, or 0; the result is a warning, or empty. For admins."""
        request = cluster_pb2.SetGuaranteeRequest(project=project, gpus=gpus)
        return (await self._unary(self._cluster.SetGuarantee, request)).warning

    async def sum_goodput(
        self, by: str, since: float | None = None, until: float | None = None
    ) -> cluster_pb2.SumGoodputResponse:
        """Time of all jobs by ``project``, ``owner``, ``host`` or ``model``, over the UTC days between two times."""
        request = cluster_pb2.SumGoodputRequest(by=cluster_pb2.GoodputBy.Value(f"GOODPUT_BY_{by.upper()}"))
        if since is not None:
            request.since.CopyFrom(timestamp(since))
        if until is not None:
            request.until.CopyFrom(timestamp(until))
        return await self._unary(self._cluster.SumGoodput, request)

    # Jobs

    async def create_job(
        self,
        job: JobFile | job_pb2.CustomJob,
        *,
        request_id: str | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_motd: Callable[[access_pb2.Motd], None] | None = None,
        template: str = "",
        patch: str = "",
    ) -> job_pb2.CustomJob:
        """Submit a job; it survives power loss once this returns. The same ``request_id`` creates one job only.

        ``on_warning`` gets a sentence for each field that is kept but changes nothing on a bare host; ``on_motd`` the
        message of the day, where there is one. With a ``template`` (``NAME`` or ``NAME@3``) the job says its project
        alone, and ``patch`` is a JSON merge patch of the template.
        """
        request = job_pb2.CreateJobRequest(
            request_id=request_id or fresh_id(), job=as_proto(job), template=template, patch=patch
        )
        created = await self._once(self._jobs.CreateJob, request)
        if on_warning is not None:
            for warning in created.warnings:
                on_warning(warning)
        if on_motd is not None and created.HasField("motd"):
            on_motd(created.motd)
        return created.job

    async def dry_run(
        self, job: JobFile | job_pb2.CustomJob, *, on_warning: Callable[[str], None] | None = None
    ) -> job_pb2.DryRunJobResponse:
        """Check a job as if it were submitted now, and store nothing. Raises what ``create_job`` would raise.

        ``on_warning`` gets the same sentences.
        """
        found = await self._unary(self._jobs.DryRunJob, job_pb2.DryRunJobRequest(job=as_proto(job)))
        if on_warning is not None:
            for warning in found.warnings:
                on_warning(warning)
        return found

    async def get_job(self, job_id: str) -> job_pb2.CustomJob:
        """The job with its workers. Raises ``NotFound``."""
        return (await self._unary(self._jobs.GetJob, job_pb2.GetJobRequest(id=job_id))).job

    async def goodput(self, job_id: str, *, verify: bool = False) -> job_pb2.GetGoodputResponse:
        """The goodput ledger of a job; with ``verify``, compared with what its events give."""
        return await self._unary(self._jobs.GetGoodput, job_pb2.GetGoodputRequest(id=job_id, verify=verify))

    async def series(
        self,
        job_id: str,
        *,
        ranks: Iterable[int] = (),
        figures: Iterable[str] = (),
        since: float | None = None,
        until: float | None = None,
        points: int = 0,
        recording: str = "",
    ) -> AsyncGenerator[job_pb2.GetSeriesResponse]:
        """Figures of a job's ranks over time, in the order of time; more than one answer where there is much."""
        request = job_pb2.GetSeriesRequest(
            id=job_id, ranks=ranks, figures=figures, points=points, recording=recording
        )
        if since is not None:
            request.since.CopyFrom(timestamp(since))
        if until is not None:
            request.until.CopyFrom(timestamp(until))
        reached = -1.0
        while True:
            page = await self._unary(self._jobs.GetSeries, request)
            yield page
            request.page_token = page.next_page_token
            begins = seconds(page.since)
            if not request.page_token or begins <= reached:  # one that leads nowhere is not followed for ever
                return
            reached = begins

    async def cancel_job(self, job_id: str) -> job_pb2.CustomJob:
        """Ask for the job's end; returns before its workers are gone."""
        request = job_pb2.CancelJobRequest(id=job_id, request_id=fresh_id())
        return (await self._unary(self._jobs.CancelJob, request)).job

    async def restart_job(self, job_id: str) -> job_pb2.CustomJob:
        """Stop the gang and launch its next generation on the same hosts. Once, however often the call is sent."""
        request = job_pb2.RestartJobRequest(id=job_id, request_id=fresh_id())
        return (await self._unary(self._jobs.RestartJob, request)).job

    async def pause_job(self, job_id: str) -> job_pb2.CustomJob:
        """Stop the gang, free its hosts and keep the job until ``resume_job``; returns before that is done."""
        request = job_pb2.PauseJobRequest(id=job_id, request_id=fresh_id())
        return (await self._unary(self._jobs.PauseJob, request)).job

    async def resume_job(self, job_id: str) -> job_pb2.CustomJob:
        """Queue a paused job again."""
        request = job_pb2.ResumeJobRequest(id=job_id, request_id=fresh_id())
        return (await self._unary(self._jobs.ResumeJob, request)).job

    async def delete_job(self, job_id: str) -> None:
        """Remove a job that has ended from all lists and answers. Raises ``WrongState`` for one that has not."""
        await self._unary(self._jobs.DeleteJob, job_pb2.DeleteJobRequest(id=job_id, request_id=fresh_id()))

    async def watch_job(
        self, job_id: str, cursor: int = 0, *, on_link: LinkCallback | None = None
    ) -> AsyncGenerator[job_pb2.WatchJobResponse]:
        """The job's events after ``cursor``, then live until it has ended. Misses and repeats none.

        Raises ``CursorExpired`` when the history at the cursor is gone, ``NotFound`` for an unknown job.
        """
        outage = Outage(on_link)
        state, ended = job_pb2.JOB_STATE_UNSPECIFIED, False
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
                if state in TERMINAL or ended:
                    return
                # An end that was not among the events: once more, for those in between.
                if ended := await self._has_ended(job_id):
                    continue
                await anyio.sleep(outage.failed(ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    async def write_terminal(
        self, job_id: str, data: bytes, *, rank: int = 0, rows: int = 0, columns: int = 0
    ) -> int:
        """Type into the terminal of a rank, and say how large the window is; the bytes that were taken.

        At most 4,000 bytes; none is taken while the program does not read what it was given before. Raises
        ``WrongState`` where nothing runs that has a terminal, and ``Denied`` for another user's job.
        """
        request = job_pb2.WriteTerminalRequest(id=job_id, rank=rank, data=data, rows=rows, columns=columns)
        return (await self._unary(self._jobs.WriteTerminal, request)).taken

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
        contains: str = "",
        ignore_case: bool = False,
        on_link: LinkCallback | None = None,
    ) -> AsyncGenerator[job_pb2.StreamLogsResponse]:
        """Output of the job's ranks, byte for byte; with ``follow`` until the job has ended.

        ``generation`` 0 is the newest, and ``follow`` continues through later ones. No ``workers`` or ``ranks``
        means all. Chunks with ``problem`` say that a stream can't be read to its end. With ``contains`` only lines that
        contain this text, which the hosts look for.
        """
        first = job_pb2.StreamLogsRequest(
            id=job_id,
            workers=workers,
            ranks=ranks,
            generation=generation,
            follow=follow,
            tail_lines=tail_lines,
            since=since,
            contains=contains,
            ignore_case=ignore_case,
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
                await anyio.sleep(outage.failed(ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    # Packaged code

    async def upload_bundle(
        self, bundle: Bundle, *, on_progress: Progress | None = None, on_link: LinkCallback | None = None
    ) -> bool:
        """Have the controller hold packaged code, for a job that names its digest. Whether it had to be sent.

        Raises ``StorageFull`` where there is no room for it.
        """
        from holdfast._sdk import bundle_calls

        return await bundle_calls.upload(self._bundles, bundle, self.settings.controller, on_progress, on_link)

    async def _has_ended(self, job_id: str) -> bool:
        """Whether a stream that ended cleanly did so with its job; otherwise its controller was going away."""
        return (await self.get_job(job_id)).state in TERMINAL


def as_proto(job: JobFile | job_pb2.CustomJob) -> job_pb2.CustomJob:
    """The message for a parsed job file; a message is returned as it is."""
    if isinstance(job, job_pb2.CustomJob):
        return job
    # Not at the top: the spec brings pydantic along, which most callers don't need.
    from holdfast import spec

    return spec.job_to_proto(job)
