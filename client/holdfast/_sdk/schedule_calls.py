"""The SDK's calls about schedules and templates (``client.schedules``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc

from holdfast._sdk.transport import Calling
from holdfast.settings import ClientSettings
from holdfast.v1 import job_pb2, schedule_pb2, schedule_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable


class ScheduleCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do. A project is "default" where none is named."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast(
            "schedule_pb2_grpc.ScheduleServiceAsyncStub", schedule_pb2_grpc.ScheduleServiceStub(channel)
        )

    async def create(
        self,
        name: str,
        cron: str,
        job: job_pb2.CustomJob,
        *,
        time_zone: str = "UTC",
        overlap: str = "forbid",
        deadline_s: float = 0.0,
        template: str = "",
        patch: str = "",
        on_warning: Callable[[str], None] | None = None,
    ) -> schedule_pb2.Schedule:
        """Submit ``job``, or one of ``template``, whenever ``cron`` is due. ``overlap``: allow, forbid or replace."""
        request = schedule_pb2.CreateScheduleRequest(
            name=name,
            cron=cron,
            time_zone=time_zone,
            overlap=schedule_pb2.Overlap.Value(f"OVERLAP_{overlap.upper()}"),
            job=job,
            template=template,
            patch=patch,
        )
        if deadline_s:
            request.starting_deadline.FromNanoseconds(round(deadline_s * 1e9))
        created = await self._unary(self._stub.CreateSchedule, request)
        if on_warning is not None:
            for warning in created.warnings:
                on_warning(warning)
        return created.schedule

    async def all(self, *, project: str = "", name: str = "") -> list[schedule_pb2.Schedule]:
        """Schedules of the projects that the caller may see; of one name with their jobs."""
        pages = self._pages(self._stub.ListSchedules, schedule_pb2.ListSchedulesRequest(project=project, name=name))
        return [each async for page in pages for each in page.schedules]

    async def pause(self, name: str, *, project: str = "") -> schedule_pb2.Schedule:
        """Submit nothing until it is resumed."""
        request = schedule_pb2.PauseScheduleRequest(project=project, name=name)
        return (await self._unary(self._stub.PauseSchedule, request)).schedule

    async def resume(self, name: str, *, project: str = "") -> schedule_pb2.Schedule:
        """Go on; what was due meanwhile is not made up."""
        request = schedule_pb2.ResumeScheduleRequest(project=project, name=name)
        return (await self._unary(self._stub.ResumeSchedule, request)).schedule

    async def remove(self, name: str, *, project: str = "") -> None:
        """Remove a schedule; its jobs go on."""
        request = schedule_pb2.RemoveScheduleRequest(project=project, name=name)
        await self._unary(self._stub.RemoveSchedule, request)

    async def create_template(self, name: str, job: job_pb2.CustomJob) -> schedule_pb2.Template:
        """Keep a job as the template's next version; the newest version once more makes no other."""
        request = schedule_pb2.CreateTemplateRequest(name=name, job=job)
        return (await self._unary(self._stub.CreateTemplate, request)).template

    async def list_templates(self, *, project: str = "", name: str = "") -> list[schedule_pb2.Template]:
        """Templates of the projects that the caller may see; of one name all versions with their jobs."""
        pages = self._pages(self._stub.ListTemplates, schedule_pb2.ListTemplatesRequest(project=project, name=name))
        return [each async for page in pages for each in page.templates]

    async def remove_template(self, name: str, *, project: str = "") -> None:
        """Remove a template with all its versions."""
        request = schedule_pb2.RemoveTemplateRequest(project=project, name=name)
        await self._unary(self._stub.RemoveTemplate, request)
