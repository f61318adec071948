"""``ScheduleService``: schedules, and the templates that jobs are made of."""

from __future__ import annotations

from google.protobuf import json_format

from holdfast._base.job_file.secret_names import hide_secrets
from holdfast.v1 import job_pb2, schedule_pb2, schedule_pb2_grpc, spec_pb2
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.model.schedules import Overlap, Schedule, Template, TemplateVersion
from holdfast_controller.core.scheduling.recurring import next_run
from holdfast_controller.core.step.schedule_commands import (
    ScheduleAsked,
    SchedulePauseAsked,
    ScheduleRemovalAsked,
    TemplateAsked,
    TemplateRemovalAsked,
)
from holdfast_controller.shell.calls.audit_words import DEFAULT_PROJECT
from holdfast_controller.shell.calls.rpc import Context, caller_name, unary
from holdfast_controller.shell.calls.slices import apart_if_large, paged
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.notify.channels import without_secrets
from holdfast_controller.shell.services.job_service import JobService
from holdfast_controller.shell.services.templated import as_json, job_of, read

UTC = "UTC"
_OVERLAPS = {
    schedule_pb2.OVERLAP_ALLOW: Overlap.ALLOW,
    schedule_pb2.OVERLAP_REPLACE: Overlap.REPLACE,
}


class ScheduleService(schedule_pb2_grpc.ScheduleServiceServicer):
    """Serves callers that the guard has authorised: see ``Where.PLAN``."""

    def __init__(self, driver: Driver, jobs: JobService, cluster_name: str) -> None:
        self._driver = driver
        self._jobs = jobs
        self._name = cluster_name

    @unary
    async def CreateSchedule(
        self, request: schedule_pb2.CreateScheduleRequest, context: Context
    ) -> schedule_pb2.CreateScheduleResponse:
        owner = caller_name(context)
        job_file, found = await self._jobs.submission(owner, await job_of(self._driver.cluster, request))
        deadline_s = request.starting_deadline.ToTimedelta().total_seconds()
        overlap = _OVERLAPS.get(request.overlap, Overlap.FORBID)
        zone = request.time_zone or UTC

        def asked(token: int) -> ScheduleAsked:
            return ScheduleAsked(
                token, owner, request.name, request.cron, zone, overlap, deadline_s, found.plan, unseen=found.unseen
            )

        key = await self._driver.ask(asked)
        warnings = map(str, self._jobs.warnings(job_file))
        return schedule_pb2.CreateScheduleResponse(schedule=self._schedule(key), warnings=warnings)

    @unary
    async def ListSchedules(
        self, request: schedule_pb2.ListSchedulesRequest, context: Context
    ) -> schedule_pb2.ListSchedulesResponse:
        keys = self._keys(context, self._driver.cluster.schedules, request.project, request.name)
        viewer = caller_name(context)

        async def picture(key: str) -> schedule_pb2.Schedule | None:
            shown = self._schedule(key)
            if shown is not None and request.name:
                schedule = self._driver.cluster.schedules[key]
                await apart_if_large(len(schedule.plan.spec_json), _add_plan, shown, schedule, viewer)
            return shown

        found, more = await paged(keys, request, picture)
        await self._driver.settled()
        return schedule_pb2.ListSchedulesResponse(schedules=found, next_page_token=more)

    @unary
    async def PauseSchedule(
        self, request: schedule_pb2.PauseScheduleRequest, context: Context
    ) -> schedule_pb2.PauseScheduleResponse:
        return schedule_pb2.PauseScheduleResponse(schedule=await self._pause(request, context, resume=False))

    @unary
    async def ResumeSchedule(
        self, request: schedule_pb2.ResumeScheduleRequest, context: Context
    ) -> schedule_pb2.ResumeScheduleResponse:
        return schedule_pb2.ResumeScheduleResponse(schedule=await self._pause(request, context, resume=True))

    async def _pause(
        self,
        request: schedule_pb2.PauseScheduleRequest | schedule_pb2.ResumeScheduleRequest,
        context: Context,
        *,
        resume: bool,
    ) -> schedule_pb2.Schedule | None:
        by, project = caller_name(context), request.project or DEFAULT_PROJECT
        key = await self._driver.ask(
            lambda token: SchedulePauseAsked(token, by, project, request.name, resume=resume)
        )
        return self._schedule(key)

    @unary
    async def RemoveSchedule(
        self, request: schedule_pb2.RemoveScheduleRequest, context: Context
    ) -> schedule_pb2.RemoveScheduleResponse:
        by, project = caller_name(context), request.project or DEFAULT_PROJECT
        await self._driver.ask(lambda token: ScheduleRemovalAsked(token, by, project, request.name))
        return schedule_pb2.RemoveScheduleResponse()

    @unary
    async def CreateTemplate(
        self, request: schedule_pb2.CreateTemplateRequest, context: Context
    ) -> schedule_pb2.CreateTemplateResponse:
        by = caller_name(context)
        job_file, _ = await self._jobs.submission(by, request.job)
        text = await apart_if_large(request.job.ByteSize(), as_json, job_file)
        answer = await self._driver.ask(
            lambda token: TemplateAsked(token, by, job_file.project, request.name, text)
        )
        key, _, version = answer.partition("@")
        return schedule_pb2.CreateTemplateResponse(template=self._template(key, int(version)))

    @unary
    async def ListTemplates(
        self, request: schedule_pb2.ListTemplatesRequest, context: Context
    ) -> schedule_pb2.ListTemplatesResponse:
        templates = self._driver.cluster.templates
        keys = self._keys(context, templates, request.project, request.name)
        versions = [  # in their order as texts, too: no name has a sign before a tab
            f"{key}\t{number:09}"
            for key in keys
            for number in (sorted(templates[key].versions) if request.name else (templates[key].newest,))
        ]

        viewer = caller_name(context)

        async def picture(each: str) -> schedule_pb2.Template | None:
            key, _, number = each.partition("\t")
            shown = self._template(key, int(number))
            if shown is not None and request.name:
                version = templates[key].versions[int(number)]
                await apart_if_large(len(version.job_json), _add_job, shown, version, viewer)
            return shown

        found, more = await paged(versions, request, picture)
        await self._driver.settled()
        return schedule_pb2.ListTemplatesResponse(templates=found, next_page_token=more)

    @unary
    async def RemoveTemplate(
        self, request: schedule_pb2.RemoveTemplateRequest, context: Context
    ) -> schedule_pb2.RemoveTemplateResponse:
        by, project = caller_name(context), request.project or DEFAULT_PROJECT
        await self._driver.ask(lambda token: TemplateRemovalAsked(token, by, project, request.name))
        return schedule_pb2.RemoveTemplateResponse()

    def _keys(
        self, context: Context, known: dict[str, Schedule] | dict[str, Template], project: str, name: str
    ) -> list[str]:
        """Keys of the projects that the caller may see, sorted."""
        cluster, admins = self._driver.cluster, self._driver.reactor.policies.admins
        sees = Registry(self._name, cluster.people, admins).sees(caller_name(context))
        return sorted(
            key
            for key, each in known.items()
            if sees(each.project) and project in ("", each.project) and name in ("", each.name)
        )

    def _schedule(self, key: str) -> schedule_pb2.Schedule | None:
        schedule = self._driver.cluster.schedules.get(key)
        if schedule is None:
            return None
        due = next_run(self._driver.cluster, schedule)
        shown = schedule_pb2.Schedule(
            project=schedule.project,
            name=schedule.name,
            owner=schedule.owner,
            cron=schedule.cron,
            time_zone=schedule.time_zone,
            overlap=schedule_pb2.Overlap.Value(f"OVERLAP_{schedule.overlap.value}"),
            create_time=timestamp(schedule.created_at),
            paused_by=schedule.paused_by,
            next_run=timestamp(due) if due is not None else None,
            last_run=timestamp(schedule.fired_at) if schedule.fired else None,
            runs=schedule.fired,
            job_ids=schedule.job_ids,
            left_out=schedule.left_out,
        )
        if schedule.deadline_s:
            shown.starting_deadline.FromNanoseconds(round(schedule.deadline_s * 1e9))
        return shown

    def _template(self, key: str, number: int) -> schedule_pb2.Template | None:
        template = self._driver.cluster.templates.get(key)
        version = template.versions.get(number) if template is not None else None
        if template is None or version is None:
            return None
        return schedule_pb2.Template(
            project=template.project,
            name=template.name,
            owner=template.owner,
            version=number,
            updated_by=version.by,
            update_time=timestamp(version.at),
        )


def _add_plan(shown: schedule_pb2.Schedule, schedule: Schedule, viewer: str) -> None:
    """Draw the schedule's job, as the viewer may see it."""
    plan = schedule.plan
    shown.job.CopyFrom(
        job_pb2.CustomJob(
            display_name=plan.display_name,
            project=schedule.project,
            labels=plan.labels,
            annotations=plan.annotations,
            job_spec=json_format.Parse(plan.spec_json, spec_pb2.CustomJobSpec()),
        )
    )
    if viewer != schedule.owner:
        hide_secrets(shown.job.job_spec)


def _add_job(shown: schedule_pb2.Template, version: TemplateVersion, viewer: str) -> None:
    """Draw the version's job, as the viewer may see it."""
    shown.job.CopyFrom(read(version.job_json, shown.project))
    without_secrets(shown.job.job_spec)
    if viewer not in (shown.owner, version.by):
        hide_secrets(shown.job.job_spec)
