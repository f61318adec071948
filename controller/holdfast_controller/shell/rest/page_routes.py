"""Addresses of the calls that the web page makes beside those of jobs and hosts; programs may make them too."""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast._base.config import duration_s
from holdfast._sdk import json_view
from holdfast._session import hang_wire
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import access_pb2, cluster_pb2, hang_pb2, host_pb2, job_pb2, web_pb2
from holdfast_controller.shell.rest import body, streams
from holdfast_controller.shell.rest.calls import Calls
from holdfast_controller.shell.rest.context import context_of, party_of
from holdfast_controller.shell.rest.following import followed
from holdfast_controller.shell.rest.printed import Json
from holdfast_controller.shell.rest.routes import CLUSTER, HOSTS, JOBS, bounded
from holdfast_controller.shell.rest.shared_answers import Queue

ACCESS = "/holdfast.v1.AccessService/"
HANGS = "/holdfast.v1.HangService/"
WEB = "/holdfast.v1.WebService/"
_DURATIONS = ("duration", "deadline")

M = TypeVar("M", bound=Message)
Endpoint = Callable[[Request], Awaitable[Response]]


def page_routes(calls: Calls) -> list[Route]:
    """Every address, each for one gRPC method."""
    pages = Pages(calls)
    acts = (
        ("cordon", f"{HOSTS}Cordon", host_pb2.CordonRequest),
        ("uncordon", f"{HOSTS}Uncordon", host_pb2.UncordonRequest),
        ("drain", f"{HOSTS}Drain", host_pb2.DrainRequest),
        ("check", f"{HOSTS}CheckHost", host_pb2.CheckHostRequest),
    )
    return [
        Route("/v1/me", bounded(pages.me), methods=["GET"]),
        Route("/v1/users", bounded(pages.users), methods=["GET"]),
        Route("/v1/usage", bounded(pages.usage), methods=["GET"]),
        Route("/v1/audit", bounded(pages.audit), methods=["GET"]),
        Route("/v1/sessions", bounded(pages.sessions), methods=["GET"]),
        Route("/v1/sessions/{id}", bounded(pages.end_session), methods=["DELETE"]),
        Route("/v1/reservations/{name}", bounded(pages.delete_reservation), methods=["DELETE"]),
        Route("/v1/changes", pages.changes, methods=["GET"]),
        Route("/v1/jobs/{id}:hold", bounded(pages.hold), methods=["POST"]),
        Route("/v1/jobs/{id}:stacks", pages.stacks, methods=["POST"]),
        Route("/v1/jobs/{id}:shell", pages.shell, methods=["POST"]),
        Route("/v1/jobs/{id}:writeShell", bounded(pages.write_shell), methods=["POST"]),
        Route("/v1/jobs/{id}/hangs/{number:int}/evidence", pages.evidence, methods=["GET"]),
        *(
            Route(f"/v1/hosts/{{name}}:{verb}", bounded(pages.host_act(method, message)), methods=["POST"])
            for verb, method, message in acts
        ),
    ]


class Pages:
    """The endpoints. Each raises what ``errors.answer`` prints."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._followers = Queue()

    async def me(self, request: Request) -> Response:
        body.parameters(request, ())
        return Json(json_view.plain(await self._one(request, f"{ACCESS}GetCaller", access_pb2.GetCallerRequest())))

    async def users(self, request: Request) -> Response:
        given = body.parameters(request, ("pageSize", "pageToken"))
        size, token = body.whole(given, "pageSize") or 0, body.single(given, "pageToken")
        message = access_pb2.ListUsersRequest(page_size=size, page_token=token)
        found = await self._one(request, f"{ACCESS}ListUsers", message)
        return Json(
            {"users": [json_view.plain(each) for each in found.users], "nextPageToken": found.next_page_token}
        )

    async def usage(self, request: Request) -> Response:
        body.parameters(request, ())
        found = await self._one(request, f"{CLUSTER}GetStatus", cluster_pb2.GetStatusRequest())
        return Json({"stored": [json_view.plain(each) for each in found.stored]})

    async def audit(self, request: Request) -> Response:
        given = body.parameters(request, ("limit", "who", "refused", "trail"))
        message = access_pb2.ReadAuditRequest(
            limit=body.whole(given, "limit") or 0,
            who=body.single(given, "who"),
            refused=body.truth(given, "refused"),
            trail=body.single(given, "trail"),
        )
        found = await self._one(request, f"{ACCESS}ReadAudit", message)
        return Json({"entries": [json_view.plain(each) for each in found.entries]})

    async def sessions(self, request: Request) -> Response:
        given = body.parameters(request, ("user", "all"))
        message = web_pb2.ListSessionsRequest(user=body.single(given, "user"), all=body.truth(given, "all"))
        found = await self._one(request, f"{WEB}ListSessions", message)
        return Json({"sessions": [json_view.plain(each) for each in found.sessions]})

    async def end_session(self, request: Request) -> Response:
        given = body.parameters(request, ("user",))
        await body.no_body(request)
        message = web_pb2.EndSessionRequest(id=request.path_params["id"], user=body.single(given, "user"))
        await self._one(request, f"{WEB}EndSession", message)
        return Json({})

    async def delete_reservation(self, request: Request) -> Response:
        body.parameters(request, ())
        await body.no_body(request)
        message = cluster_pb2.DeleteReservationRequest(name=request.path_params["name"])
        await self._one(request, f"{CLUSTER}DeleteReservation", message)
        return Json({})

    async def hold(self, request: Request) -> Response:
        body.parameters(request, ())
        message = await _message(request, hang_pb2.HoldJobRequest(), id=request.path_params["id"])
        return Json(json_view.job((await self._one(request, f"{HANGS}HoldJob", message)).job))

    def host_act(self, method: str, kind: type[Message]) -> Endpoint:
        """The endpoint of an admin's act on a host, whose fields are the body's."""

        async def endpoint(request: Request) -> Response:
            body.parameters(request, ())
            message = await _message(request, kind(), name=request.path_params["name"])
            return Json(json_view.host((await self._one(request, method, message)).host))

        return endpoint

    async def stacks(self, request: Request) -> Response:
        body.parameters(request, ())
        with request.app.state.bounds.call(
            party_of(request)
        ):  # while the body is read; the stream has a place of its own
            message = await _message(request, hang_pb2.TakeStacksRequest(), id=request.path_params["id"])
        return await self._many(request, f"{HANGS}TakeStacks", message, streams.lines_form(_evidence))

    async def shell(self, request: Request) -> Response:
        body.parameters(request, ())
        with request.app.state.bounds.call(party_of(request)):  # as above
            message = await _message(request, job_pb2.OpenShellRequest(), id=request.path_params["id"])
        return await self._many(request, f"{JOBS}OpenShell", message, streams.lines_form(_shell))

    async def write_shell(self, request: Request) -> Response:
        body.parameters(request, ())
        message = await _message(request, job_pb2.WriteShellRequest(), id=request.path_params["id"])
        return Json({"taken": (await self._one(request, f"{JOBS}WriteShell", message)).taken})

    async def evidence(self, request: Request) -> Response:
        body.parameters(request, ())
        path = request.path_params
        message = hang_pb2.GetHangEvidenceRequest(id=path["id"], number=min(path["number"], 2**31 - 1))
        return await self._many(request, f"{HANGS}GetHangEvidence", message, streams.lines_form(_evidence))

    async def changes(self, request: Request) -> Response:
        given = body.parameters(request, ("cursor", "follow"))
        message = cluster_pb2.WatchChangesRequest(cursor=body.cursor(request, given))
        form, asked = streams.changes_form(request), given.get("follow", [])
        accepted = request.headers.get("accept-encoding", "").lower()
        if not asked or "gzip" not in accepted or form.media_type != "text/event-stream":
            return await self._many(request, f"{CLUSTER}WatchChanges", message, form)
        return await streams.response(
            request,
            self._calls,
            f"{CLUSTER}WatchChanges",
            message,
            context_of(request),
            streams.gzipped(form),
            functools.partial(followed, request, asked, self._followers),
        )

    async def _one(self, request: Request, method: str, message: Message) -> Any:
        return await self._calls.one(method, message, context_of(request))

    async def _many(self, request: Request, method: str, message: Message, form: streams.Form) -> Response:
        return await streams.response(request, self._calls, method, message, context_of(request), form)


async def _message(request: Request, message: M, **named: str) -> M:
    """``message`` with the fields of the body, and those that the address gives. Raises ``InvalidInput``."""
    text = await body.body(request) if body.has_body(request) else "{}"
    try:
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("it must be an object")
        for name in _DURATIONS:
            if fields.get(name) is not None:  # null is unset, as for all other fields
                fields[name] = f"{duration_s(fields[name]):.3f}s"
        json_format.ParseDict({**fields, **named}, message)
    except (ValueError, json_format.ParseError, RecursionError) as error:
        raise InvalidInput([Violation("", f"can't be read: {str(error)[:200]}")], what=body.WHAT) from None
    return message


def _evidence(message: hang_pb2.TakeStacksResponse | hang_pb2.GetHangEvidenceResponse) -> json_view.Json:
    host = getattr(message, "host", "")
    problem = getattr(message, "problem", "")
    return json_view.evidence(hang_wire.received(message.worker, host, message.content, problem))


def _shell(message: job_pb2.OpenShellResponse) -> json_view.Json:
    """Its names, some of its output in base64, or how it ended: of those, the fields that are set."""
    return json_format.MessageToDict(message)
