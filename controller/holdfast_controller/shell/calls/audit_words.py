"""Words of the audit log for a call: what it was about, what it made, and how it ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from typing import Any

import grpc

from holdfast._base.plural import count
from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast.v1 import job_pb2
from holdfast_controller.core.access.secrets import is_name
from holdfast_controller.shell.calls.rpc import Context

DEFAULT_PROJECT = "default"
COMMAND_MOST = 500
"""Characters of a command that are kept."""
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


class StreamWords:
    """Words for a stream that is on record from its beginning, a shell's; empty, or those of its end, for others."""

    def __init__(self, method: str, request: Any) -> None:
        self._what = _shell_words(request) if method.endswith("JobService/OpenShell") else ""
        self._since_s = 0.0

    def at_first_answer(self) -> str:
        """Words for its beginning; empty at all answers but the first."""
        if not self._what or self._since_s:
            return ""
        self._since_s = time.monotonic()
        return f"begins {self._what}"

    def at_end(self, message: str) -> str:
        """Words for its end, with those of its status."""
        if not self._since_s:
            return message
        over = f"over after {time.monotonic() - self._since_s:.0f} s {self._what}"
        return f"{over}: {message}" if message else over


def detail(method: str, request: Any) -> str:
    """The part of a call that is kept in the audit log beside its subject, such as a weight; else empty."""
    if method.endswith("ClusterService/SetShare"):
        return f"weight {request.weight:.12g}" if request.HasField("weight") else "no weight"
    if method.endswith("ScheduleService/CreateSchedule"):
        return one_line(f"{request.cron} in {request.time_zone or 'UTC'}"[:COMMAND_MOST])
    if method.endswith("ClusterService/SetGuarantee"):
        return f"guarantee of {count(request.gpus, 'GPU')}" if request.gpus else "no guarantee"
    if method.endswith("ClusterService/SetQuota"):
        limits = ", ".join(f"{field.name} {value}" for field, value in request.limits.ListFields())
        return "; ".join(filter(None, ("all cleared" if request.clear else "", limits)))
    if method.endswith("ClusterService/CreateReservation"):
        return one_line(_reserved(request.reservation)[:COMMAND_MOST])
    if not method.endswith("JobService/InjectFault"):
        return ""
    known = request.fault in job_pb2.FaultKind.values()  # any number may be sent
    fault = job_pb2.FaultKind.Name(request.fault) if known else f"fault {request.fault}"
    fault = fault.removeprefix("FAULT_KIND_").lower()
    span = f" for {seconds(request.duration):.12g} s" if request.HasField("duration") else ""
    return f"{fault} of rank {request.rank}{span}"


def _reserved(wanted: Any) -> str:
    what = count(wanted.gpus, "GPU") if wanted.gpus else count(wanted.count, "host") if wanted.count else "hosts"
    which = [*wanted.hosts, *(f"{key}={value}" for key, value in sorted(wanted.labels.items()))]
    which += [wanted.match] if wanted.match else []
    whose = " in ".join(filter(None, (f"user {wanted.user}" if wanted.user else "", wanted.project)))
    until = f" until {wanted.end.ToJsonString()}" if wanted.HasField("end") else ""
    since = f" from {wanted.start.ToJsonString()}" if wanted.HasField("start") else ""
    return f"{what} {' '.join(which)} for {whose}{since}{until}"


def _shell_words(request: Any) -> str:
    command = shlex.join(request.command)
    what = f"{command[:COMMAND_MOST]}{' …' * (len(command) > COMMAND_MOST)}" if command else "a shell"
    return f"beside rank {request.rank}: {one_line(what)}"


class Ended:
    """A call's context that notes an error in the audit log before its caller learns of it."""

    def __init__(self, context: Context, note: Callable[[str, str], None]) -> None:
        self._context, self._note, self._noted = context, note, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort_with_status(self, status: grpc.Status) -> None:
        """End the call with a status. Raises what ends its handler."""
        self._noted = True
        self._note(status.code.name, status.details)
        await self._context.abort_with_status(status)

    def note_end(self) -> None:
        """Note how a call has ended that ended with an error, unless that is noted."""
        if not self._noted:
            self._note(*outcome_of(self._context))


def call_kind(call: str) -> str:
    """The kind of thing that a call of ``ScheduleService`` is about."""
    return "template" if "Template" in call else "schedule"


def subject_of(method: str, request: Any) -> str:
    """Entity that a request names, as KIND/NAME."""
    service, _, call = method.rpartition("/")
    named = getattr(request, "id", "") or getattr(request, "name", "")
    if call in ("SetShare", "SetGuarantee"):
        return f"project/{request.project}"
    if call == "SetQuota":
        return f"user/{request.user}" if request.HasField("user") else f"project/{request.project}"
    if call.endswith("Reservation"):
        return f"reservation/{request.reservation.name if call == 'CreateReservation' else named}"
    if service.endswith(".ScheduleService"):
        of = request.job if hasattr(request, "job") else request
        return f"{call_kind(call)}/{of.project or DEFAULT_PROJECT}/{named}"
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
