"""Errors as JSON, in the form that Google's APIs print them: ``{"error": {code, message, status, details}}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import json_format
from google.rpc import code_pb2, status_pb2
from starlette.exceptions import HTTPException
from starlette.requests import Request

from holdfast._base import rpc_status
from holdfast.errors import HoldfastError
from holdfast_controller.shell.rest.calls import Aborted
from holdfast_controller.shell.rest.printed import Json

_DETAILS = "grpc-status-details-bin"
_HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""HTTP status by gRPC code, as ``google/rpc/code.proto`` gives it; 500 for the rest."""


class Refusal(Exception):
    """A request that HTTP has its own status for, such as 413; ``error`` says why."""

    def __init__(self, http_status: int, error: HoldfastError, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(error))
        self.http_status = http_status
        self.error = error
        self.headers = dict(headers or {})


def body_of(status: grpc.Status, http_status: int | None = None) -> dict[str, Any]:
    """The JSON of a status, with every detail that it carries. Refusals of HTTP's own keep their number."""
    name = status.code.name
    rich = status_pb2.Status()
    for key, value in status.trailing_metadata or ():
        if key == _DETAILS:
            rich.ParseFromString(value)
    details = json_format.MessageToDict(rich).get("details", [])
    code = http_status or _HTTP.get(name, 500)
    return {"error": {"code": code, "message": status.details, "status": name, "details": details}}


def answer(error: Exception) -> Json:
    """The response for whatever a route has raised."""
    headers: dict[str, str] = {}
    match error:
        case Aborted():
            body = body_of(error.status)
        case HoldfastError():
            body = body_of(rpc_status.to_status(error))
        case Refusal():
            body, headers = body_of(rpc_status.to_status(error.error), error.http_status), error.headers
        case HTTPException():
            name = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}.get(error.status_code, "INVALID_ARGUMENT")
            said = {404: "There is nothing at this address.", 405: "This address does not take this method."}
            message = said.get(error.status_code, error.detail)
            body = {"error": {"code": error.status_code, "message": message, "status": name, "details": []}}
            headers = dict(error.headers or {})
        case _:
            name = code_pb2.Code.Name(code_pb2.INTERNAL)
            message = "The controller failed; its log says more."
            body = {"error": {"code": 500, "message": message, "status": name, "details": []}}
    code = body["error"]["code"]
    if code == 503:
        headers.setdefault("Retry-After", "1")
    return Json(body, code, headers)


async def on_error(request: Request, error: Exception) -> Json:
    """Like ``answer``, in the form that Starlette calls."""
    return answer(error)
