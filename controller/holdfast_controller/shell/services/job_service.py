"""``JobService``: submits, lists, watches and controls jobs for users."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Container
from dataclasses import replace
from typing import cast

from google.protobuf import json_format, struct_pb2

from holdfast import spec
from holdfast.errors import CursorExpired, Violation, WrongState
from holdfast.v1 import agent_pb2, job_pb2, job_pb2_grpc, spec_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.projections.dry_run import dry_run
from holdfast_controller.core.step.commands import (
    CancelAsked,
    DeleteAsked,
    JobSubmission,
    PauseAsked,
    RestartAsked,
    ResumeAsked,
)
from holdfast_controller.shell.bundles.bundle_store import BundleStore
from holdfast_controller.shell.calls.committed_views import (
    committed_job,
    find_job,
    know_spec,
    seen_by,
    spec_of,
)
from holdfast_controller.shell.calls.rpc import Context, caller_name, once, streaming, unary
from holdfast_controller.shell.calls.slices import TURNS, Page, apart_if_large
from holdfast_controller.shell.convert.gang_from_spec import gang_of
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.convert.job_event_to_proto import event_to_proto
from holdfast_controller.shell.convert.job_to_proto import dry_run_to_proto, job_to_proto, motd_to_proto, timestamp
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.notify.channels import Channels, without_secrets
from holdfast_controller.shell.services import job_lists
from holdfast_controller.shell.services.fault_injection import inject
from holdfast_controller.shell.services.goodput import job_goodput
from holdfast_controller.shell.services.job_ids import new_id
from holdfast_controller.shell.services.series import job_series
from holdfast_controller.shell.services.spec_checks import check_code, check_secrets, unseen_dependencies
from holdfast_controller.shell.services.streams.rank_shells import RankShells
from holdfast_controller.shell.services.streams.read_logs import LogReading
from holdfast_controller.shell.services.streams.transfers import Transfers
from holdfast_controller.shell.services.templated import job_of
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.series.store import SeriesStore

_HISTORY_BATCH = 500
ACTED_EXITS = 1
"""The answer to an act on a job has the exits of so many of its newest generations: it may have had thousands."""


class JobService(job_pb2_grpc.JobServiceServicer):
    """Serves jobs; every state that it returns is durable."""

    def __init__(
        self,
        driver: Driver,
        transfers: Transfers,
        cluster_name: str,
        defaults: JobDefaults,
        channels: Channels,
        bundles: BundleStore,
        series: SeriesStore,
    ) -> None:
        self._series = series
        self._channels = channels
        self._bundles = bundles
        self._defaults = defaults
        self._driver = driver
        self._transfers = transfers
        self._shells = RankShells(driver, transfers)
        self._name = cluster_name

    def change(self, defaults: JobDefaults, channels: Channels) -> None:
        """Set what holds for jobs from now on that don't say, and the receivers that they may name."""
        self._defaults, self._channels = defaults, channels

    def warnings(self, job_file: spec.JobFile) -> list[Violation]:
        """A warning for each field that changes nothing here: a machine type does where some are declared."""
        return spec.warnings(job_file, machine_types=bool(self._defaults.machine_types))

    @unary
    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: Context) -> job_pb2.CreateJobResponse:
        owner = caller_name(context)
        job_file, submitted = await self.submission(owner, await job_of(self._driver.cluster, request))

        def submission(token: int) -> JobSubmission:
            job_id = new_id(job_file.display_name, *self._taken())
            return replace(submitted, token=token, request_id=request.request_id, job_id=job_id)

        job_id = await self._driver.ask(once(owner, request, submission))
        warnings = map(str, self.warnings(job_file))
        job = await committed_job(self._driver, job_id, owner, projected=False)
        motd = motd_to_proto(self._driver.cluster.people.motd)
        return job_pb2.CreateJobResponse(job=job, warnings=warnings, motd=motd)

    @unary
    async def DryRunJob(self, request: job_pb2.DryRunJobRequest, context: Context) -> job_pb2.DryRunJobResponse:
        wanted = await job_of(self._driver.cluster, request)
        job_file, submitted = await self.submission(caller_name(context), wanted, sent=False)
        found = dry_run(self._driver.cluster, submitted, self._driver.reactor.policies, now())
        await self._driver.settled()
        answer = dry_run_to_proto(found, submitted.plan.gang)
        answer.warnings.extend(map(str, self.warnings(job_file)))
        return answer

    @unary
    async def GetJob(self, request: job_pb2.GetJobRequest, context: Context) -> job_pb2.GetJobResponse:
        found = await committed_job(
            self._driver,
            request.id,
            caller_name(context),
            request.exits_of_newest,
            fold_exits=request.fold_exits,
            workers=not request.without_workers,
        )
        return job_pb2.GetJobResponse(job=found)

    @unary
    async def GetGoodput(self, request: job_pb2.GetGoodputRequest, context: Context) -> job_pb2.GetGoodputResponse:
        return await job_goodput(self._driver, await find_job(self._driver, request.id), verify=request.verify)

    @unary
    async def GetSeries(self, request: job_pb2.GetSeriesRequest, context: Context) -> job_pb2.GetSeriesResponse:
        job = await find_job(self._driver, request.id)
        return await job_series(self._series, job, request, caller_name(context))

    @unary
    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Context) -> job_pb2.ListJobsResponse:
        viewer = caller_name(context)
        sees = self._sees(viewer)
        row = request.view == job_pb2.JOB_VIEW_ROW
        page, slices = Page(request.page_size or job_lists.PAGE), TURNS.begin()
        cluster, found, last, more = self._driver.cluster, [], 0, ""
        queue = self._driver.reactor.queue_view(now())
        async with contextlib.aclosing(job_lists.matching(self._driver, request, sees, slices)) as matching:
            async for job in matching:
                wanted = None if row else await spec_of(job)
                if job.id not in cluster.jobs:
                    continue  # it was deleted meanwhile
                picture = seen_by(viewer, job_to_proto(cluster, job, wanted, queue, now()))
                if not page.takes(picture):
                    cut = not (request.newest and page.is_full and not row)
                    more = f"{job_lists.BEFORE * request.newest}{last}" if cut else ""
                    break
                found.append(picture)
                last = job.number
                await slices.rest()
        await slices.end(page.size)
        await self._driver.settled()
        return job_pb2.ListJobsResponse(
            jobs=found[::-1] if request.newest and not row else found, next_page_token=more
        )

    @unary
    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: Context) -> job_pb2.CancelJobResponse:
        by = caller_name(context)
        job_id = await self._driver.ask(once(by, request, lambda token: CancelAsked(token, by, request.id)))
        return job_pb2.CancelJobResponse(job=await committed_job(self._driver, job_id, by, ACTED_EXITS))

    @unary
    async def RestartJob(self, request: job_pb2.RestartJobRequest, context: Context) -> job_pb2.RestartJobResponse:
        by = caller_name(context)
        job_id = await self._driver.ask(once(by, request, lambda token: RestartAsked(token, by, request.id)))
        return job_pb2.RestartJobResponse(job=await committed_job(self._driver, job_id, by, ACTED_EXITS))

    @unary
    async def PauseJob(self, request: job_pb2.PauseJobRequest, context: Context) -> job_pb2.PauseJobResponse:
        by = caller_name(context)
        job_id = await self._driver.ask(once(by, request, lambda token: PauseAsked(token, by, request.id)))
        return job_pb2.PauseJobResponse(job=await committed_job(self._driver, job_id, by, ACTED_EXITS))

    @unary
    async def ResumeJob(self, request: job_pb2.ResumeJobRequest, context: Context) -> job_pb2.ResumeJobResponse:
        by = caller_name(context)
        job_id = await self._driver.ask(once(by, request, lambda token: ResumeAsked(token, by, request.id)))
        return job_pb2.ResumeJobResponse(job=await committed_job(self._driver, job_id, by, ACTED_EXITS))

    @unary
    async def DeleteJob(self, request: job_pb2.DeleteJobRequest, context: Context) -> job_pb2.DeleteJobResponse:
        by = caller_name(context)
        await self._driver.ask(once(by, request, lambda token: DeleteAsked(token, by, request.id)))
        return job_pb2.DeleteJobResponse()

    @streaming
    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: Context
    ) -> AsyncGenerator[job_pb2.WatchJobResponse, None]:
        await find_job(self._driver, request.id)
        if request.cursor < 0:
            raise CursorExpired(f"There is no cursor {request.cursor}.", fix="Watch again from 0.")
        if any(first < request.cursor < last for first, last in self._driver.cluster.gaps):
            problem = f"The history at cursor {request.cursor} was lost when the controller was restored."
            raise CursorExpired(problem, fix="Watch again from 0.")
        cursor = request.cursor
        entity = f"job/{request.id}"
        bell = self._driver.watch(entity)
        try:
            while True:
                bell.clear()
                job = await find_job(self._driver, request.id)
                done = job.terminal
                await self._driver.settled()
                while records := await self._history(entity, cursor):
                    for record in records:
                        yield await apart_if_large(len(record.payload), _entry, record, job.gang)
                    cursor = records[-1].sequence
                if done:
                    return
                await bell.wait()
        finally:
            self._driver.unwatch(entity, bell)

    @unary
    async def WriteTerminal(
        self, request: job_pb2.WriteTerminalRequest, context: Context
    ) -> job_pb2.WriteTerminalResponse:
        job = await find_job(self._driver, request.id)
        member = next((each for each in job.gang.members if request.rank in each.ranks), None)
        if member is None or not job.gang.pool_of(member).task.terminal:
            problem = f"Rank {request.rank} of the job {job.id} has no terminal."
            raise WrongState(problem, fix="Start a job that has one: holdfast run --pty -- COMMAND")
        if job.terminal or not job.launched:
            raise WrongState(f"The job {job.id} has no running ranks.", fix=f"See: holdfast job show {job.id}")
        order = agent_pb2.GiveInput(
            job_id=job.id,
            generation=job.generation_of(member.index),
            worker=member.name,
            rank=request.rank,
            data=request.data,
            rows=request.rows,
            columns=request.columns,
        )
        answer = await self._transfers.give_input(job.places[member.index].host, order)
        if answer.problem:
            raise WrongState(f"The terminal of the job {job.id} can't be typed into: {answer.problem}")
        return job_pb2.WriteTerminalResponse(taken=min(answer.bytes, len(request.data)))

    @streaming
    async def OpenShell(
        self, request: job_pb2.OpenShellRequest, context: Context
    ) -> AsyncGenerator[job_pb2.OpenShellResponse, None]:
        async with contextlib.aclosing(self._shells.open(request, caller_name(context))) as answers:
            async for answer in answers:
                yield answer

    @unary
    async def WriteShell(self, request: job_pb2.WriteShellRequest, context: Context) -> job_pb2.WriteShellResponse:
        return await self._shells.write(request, caller_name(context))

    @unary
    async def InjectFault(
        self, request: job_pb2.InjectFaultRequest, context: Context
    ) -> job_pb2.InjectFaultResponse:
        return await inject(self._driver, self._transfers, request, caller_name(context))

    @streaming
    async def StreamLogs(
        self, request: job_pb2.StreamLogsRequest, context: Context
    ) -> AsyncGenerator[job_pb2.StreamLogsResponse, None]:
        await find_job(self._driver, request.id)
        reading = LogReading(self._driver, self._transfers, request, caller_name(context))
        async with contextlib.aclosing(reading.chunks()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def submission(
        self, owner: str, wanted: job_pb2.CustomJob, *, sent: bool = True
    ) -> tuple[spec.JobFile, JobSubmission]:
        """A job as the core takes it, without an id. Raises ``InvalidSpec`` and what else refuses it before that.

        Without ``sent`` its packaged code may be missing here.
        """
        size = wanted.ByteSize()
        job_file = await apart_if_large(size, spec.job_from_proto, wanted)
        self._channels.check(job_file.job_spec)
        self._driver.stored.check(owner, job_file.project)
        await check_code(job_file.job_spec, self._bundles if sent else None, owner)
        holders = check_secrets(job_file.job_spec, self._driver.cluster.people, owner, job_file.project)
        gang = gang_of(job_file.job_spec, self._defaults, project=job_file.project, holders=holders)
        array = spec.read_array(job_file.job_spec.scheduling.array)
        message, spec_json = await apart_if_large(size, _stored, job_file.job_spec)
        know_spec(spec_json, message)
        plan = JobPlan(
            display_name=job_file.display_name,
            gang=gang,
            spec_json=spec_json,
            labels=dict(job_file.labels),
            annotations=dict(job_file.annotations),
            kms_key=job_file.encryption_spec.kms_key_name if job_file.encryption_spec else "",
            indices=array.indices,
            at_once=array.at_once,
        )
        hidden = unseen_dependencies(job_file.job_spec, self._driver.cluster, self._sees(owner))
        return job_file, JobSubmission(0, owner, "", "", plan, hidden)

    def _taken(self) -> tuple[Container[str], ...]:
        """Ids of all jobs, also of those that were deleted, and of those that only hosts know after a restore."""
        cluster = self._driver.cluster
        hosts = cluster.hosts.values() if cluster.gaps else ()
        return (
            cluster.jobs,
            cluster.arrays,
            cluster.purged,
            {orphan.job for host in hosts for orphan in host.orphans.values()},
        )

    def _sees(self, user: str) -> Callable[[str], bool]:
        """Whether the user may look at the jobs of a project."""
        admins = self._driver.reactor.policies.admins
        return Registry(self._name, self._driver.cluster.people, admins).sees(user)

    async def _history(self, entity: str, after: int) -> list[Record]:
        return await self._driver.history(entity, after, _HISTORY_BATCH)


def _stored(wanted: spec.JobSpec) -> tuple[spec_pb2.CustomJobSpec, str]:
    """A spec as it is kept, and its text."""
    message = without_secrets(spec.to_proto(wanted))
    return message, json_format.MessageToJson(message, indent=None)


def _entry(record: Record, gang: Gang) -> job_pb2.WatchJobResponse:
    event = codec.load_event(record.type, record.version, record.payload)
    return job_pb2.WatchJobResponse(
        cursor=record.sequence,
        type=record.type,
        time=timestamp(record.at),
        message=record.message,
        data=_data(record),
        state=job_pb2.JobState.Value(f"JOB_STATE_{record.state}"),
        event=event_to_proto(cast("ev.JobEvent", event), gang),
    )


def _data(record: Record) -> struct_pb2.Struct:
    """The event's fields as clients of release 0.1 read them."""
    fields = codec.payload_of_0_1(record.type, record.version, record.payload)
    for bulky in ("spec_json", "gang"):
        fields.pop(bulky, None)
    if "rendezvous" in fields:
        # A process that knows it can join the gang.
        fields["rendezvous"].pop("secret", None)
    data = struct_pb2.Struct()
    data.update(fields)
    return data
