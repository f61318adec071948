"""Words of the audit log for a call: what it was about, what it made, and how it ended."""

from __future__ import annotations

from typing import Any

import grpc

from holdfast_controller.core.access.secrets import is_name
from holdfast_controller.shell.calls.rpc import Context

DEFAULT_PROJECT = "default"
_STATUSES = {status.value[0]: status.name for status in grpc.StatusCode}


def outcome_of(context: Context) -> tuple[str, str]:
    """(name, sentence) of the status that an ended call was given; CANCELLED for one that was given none."""
    code, details = context.code(), context.details()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    message = details.decode(errors="replace") if isinstance(details, bytes) else details
    return (_STATUSES.get(number, "UNKNOWN") if number else "CANCELLED"), message or ""


def made(answer: Any) -> str:
    """Entity that a call created, such as ``job/ID``; empty if none."""
    job = getattr(answer, "job", None)
    return f"job/{job.id}" if job is not None else ""


def subject_of(method: str, request: Any) -> str:
    """Entity that a request names, as KIND/NAME."""
    service, _, call = method.rpartition("/")
    named = getattr(request, "id", "") or getattr(request, "name", "")
    if call == "CreateToken":
        kind = request.WhichOneof("subject") or "host"
        return f"{kind}/{getattr(request, kind) or '*'}"
    if not named:
        project = getattr(getattr(request, "job", None), "project", "")
        return f"project/{project or DEFAULT_PROJECT}" if call in ("CreateJob", "DryRunJob") else ""
    if service.endswith(".SecretService"):
        # What is no name may be a value that was put in its place.
        holder = request.project or getattr(request, "user", "")
        return f"secret/{holder + '/' if holder else ''}{named if is_name(named) else '?'}"
    if service.endswith((".JobService", ".HangService")):
        return f"job/{named}"
    return f"{'user' if call.endswith('User') else 'host'}/{named}"
