"""The addresses of schedules and templates."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast._sdk import json_view
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import job_pb2, schedule_pb2
from holdfast_controller.shell.rest import body
from holdfast_controller.shell.rest.calls import Calls
from holdfast_controller.shell.rest.context import bounded, context_of
from holdfast_controller.shell.rest.printed import Json

SERVICE = "/holdfast.v1.ScheduleService/"
_OVERLAPS = ("ALLOW", "FORBID", "REPLACE")


class ScheduleGate:
    """The endpoints. Each raises what ``errors.answer`` prints."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def routes(self) -> list[Route]:
        """Every address, each for one gRPC method."""
        one = "/v1/schedules/{project}/{name}"
        return [
            Route("/v1/schedules", bounded(self.schedules), methods=["GET"]),
            Route("/v1/schedules", bounded(self.create), methods=["POST"]),
            Route(f"{one}:pause", bounded(self.pause), methods=["POST"]),
            Route(f"{one}:resume", bounded(self.resume), methods=["POST"]),
            Route(one, bounded(self.remove), methods=["DELETE"]),
            Route("/v1/templates", bounded(self.templates), methods=["GET"]),
            Route("/v1/templates", bounded(self.create_template), methods=["POST"]),
            Route("/v1/templates/{project}/{name}", bounded(self.remove_template), methods=["DELETE"]),
        ]

    async def schedules(self, request: Request) -> Response:
        message = schedule_pb2.ListSchedulesRequest()
        found = await self._one(request, "ListSchedules", _listed(request, message))
        listed = [json_view.schedule(each) for each in found.schedules]
        return Json({"schedules": listed, "nextPageToken": found.next_page_token})

    async def create(self, request: Request) -> Response:
        names = ("name", "cron", "timeZone", "overlap", "startingDeadline", "template", "project")
        given = body.parameters(request, names)
        overlap, template = body.single(given, "overlap") or "FORBID", body.single(given, "template")
        if overlap not in _OVERLAPS:
            raise InvalidInput([Violation("overlap", f"must be {', '.join(_OVERLAPS)}, or be left out")])
        message = schedule_pb2.CreateScheduleRequest(
            name=body.single(given, "name"),
            cron=body.single(given, "cron"),
            time_zone=body.single(given, "timeZone"),
            overlap=schedule_pb2.Overlap.Value(f"OVERLAP_{overlap}"),
            job=job_pb2.CustomJob() if template else await body.job(request),
            template=template,
            patch=await body.patch(request) if template else "",
        )
        message.job.project = body.single(given, "project") or message.job.project
        if deadline := body.single(given, "startingDeadline"):
            try:
                message.starting_deadline.FromJsonString(deadline)
            except ValueError:
                problem = Violation("startingDeadline", "must be a duration", "such as 3600s")
                raise InvalidInput([problem]) from None
        made = await self._one(request, "CreateSchedule", message)
        return Json(json_view.schedule(made.schedule) | {"warnings": list(made.warnings)})

    async def pause(self, request: Request) -> Response:
        found = await self._one(
            request, "PauseSchedule", await _named(request, schedule_pb2.PauseScheduleRequest())
        )
        return Json(json_view.schedule(found.schedule))

    async def resume(self, request: Request) -> Response:
        message = await _named(request, schedule_pb2.ResumeScheduleRequest())
        return Json(json_view.schedule((await self._one(request, "ResumeSchedule", message)).schedule))

    async def remove(self, request: Request) -> Response:
        await self._one(request, "RemoveSchedule", await _named(request, schedule_pb2.RemoveScheduleRequest()))
        return Json({})

    async def templates(self, request: Request) -> Response:
        message = schedule_pb2.ListTemplatesRequest()
        found = await self._one(request, "ListTemplates", _listed(request, message))
        listed = [json_view.template(each) for each in found.templates]
        return Json({"templates": listed, "nextPageToken": found.next_page_token})

    async def create_template(self, request: Request) -> Response:
        given = body.parameters(request, ("name", "project"))
        job = await body.job(request)
        job.project = body.single(given, "project") or job.project
        message = schedule_pb2.CreateTemplateRequest(name=body.single(given, "name"), job=job)
        return Json(json_view.template((await self._one(request, "CreateTemplate", message)).template))

    async def remove_template(self, request: Request) -> Response:
        await self._one(request, "RemoveTemplate", await _named(request, schedule_pb2.RemoveTemplateRequest()))
        return Json({})

    async def _one(self, request: Request, method: str, message: Message) -> Any:
        return await self._calls.one(f"{SERVICE}{method}", message, context_of(request))


def _listed(request: Request, message: Any) -> Any:
    given = body.parameters(request, ("project", "name", "pageSize", "pageToken"))
    message.project, message.name = body.single(given, "project"), body.single(given, "name")
    message.page_size, message.page_token = body.whole(given, "pageSize") or 0, body.single(given, "pageToken")
    return message


async def _named(request: Request, message: Any) -> Any:
    body.parameters(request, ())
    await body.no_body(request)
    message.project, message.name = request.path_params["project"], request.path_params["name"]
    return message
