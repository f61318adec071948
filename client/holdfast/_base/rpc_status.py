"""The one place where errors become gRPC statuses and statuses become errors again."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from holdfast import errors
from holdfast._base.printable import one_line
from holdfast.errors import HoldfastError, InvalidInput, Violation

DOMAIN = "holdfast"
MESSAGE_MAX = 1_200
VIOLATIONS_MAX = 3_000
"""Characters as they travel; text goes twice, and all of it has to fit into 8 KiB of trailing metadata."""
OVERLOADED = (
    "It may be overloaded or stopped: try again; if that goes on, run on its machine:"
    " systemctl status holdfast-controller"
)

CODES: dict[type[HoldfastError], int] = {
    errors.InvalidInput: code_pb2.INVALID_ARGUMENT,
    errors.InvalidSpec: code_pb2.INVALID_ARGUMENT,
    errors.NeverFits: code_pb2.FAILED_PRECONDITION,
    errors.AccountDenied: code_pb2.PERMISSION_DENIED,
    errors.NotFound: code_pb2.NOT_FOUND,
    errors.WrongState: code_pb2.FAILED_PRECONDITION,
    errors.WrongVersion: code_pb2.FAILED_PRECONDITION,
    errors.CursorExpired: code_pb2.OUT_OF_RANGE,
    errors.Unauthenticated: code_pb2.UNAUTHENTICATED,
    errors.Denied: code_pb2.PERMISSION_DENIED,
    errors.Unavailable: code_pb2.UNAVAILABLE,
    errors.DeadlineExceeded: code_pb2.DEADLINE_EXCEEDED,
    errors.BundleRefused: code_pb2.INVALID_ARGUMENT,
    errors.StorageFull: code_pb2.RESOURCE_EXHAUSTED,
    errors.TooMany: code_pb2.RESOURCE_EXHAUSTED,
}


def to_status(error: HoldfastError) -> grpc.Status:
    """The rich status of an error: code, sentence, ``ErrorInfo.reason`` and each field's violation."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if error.fix:
        info.metadata["fix"] = _bounded(error.fix, MESSAGE_MAX)
    details = [_packed(info)]
    if isinstance(error, InvalidInput):
        bad = error_details_pb2.BadRequest()
        for path, text in _violations(error):
            bad.field_violations.add(field=path, description=text)
        details.append(_packed(bad))
    code = _code(error)
    status: grpc.Status = rpc_status.to_status(
        status_pb2.Status(code=code, message=_bounded(error.message, MESSAGE_MAX), details=details)
    )
    return status


def code_name(error: HoldfastError) -> str:
    """The name of the status that an error becomes, such as ``PERMISSION_DENIED``."""
    return str(code_pb2.Code.Name(_code(error)))


def _code(error: HoldfastError) -> int:
    return next((CODES[cls] for cls in type(error).__mro__ if cls in CODES), code_pb2.INTERNAL)


def from_rpc_error(
    error: grpc.RpcError, *, endpoint: str = "", within_s: float = 0.0, start: str = ""
) -> HoldfastError:
    """The error that the other side raised, or what gRPC itself says of the link to ``endpoint``.

    ``within_s`` is the call's deadline, where it has one; ``start`` the command that starts the other side, where the
    caller may do so.
    """
    code: grpc.StatusCode = error.code()
    message: str = error.details() or code.name
    rich = rpc_status.from_call(error)
    if rich is not None:
        found = _from_rich(rich)
        if found is not None:
            return found
    where = f" at {endpoint}" if endpoint else ""
    match code:
        case grpc.StatusCode.UNAVAILABLE:
            return _unreachable(message, where, start)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            time = f"within {within_s:g} s" if within_s else "in time"
            return errors.DeadlineExceeded(f"The controller{where} did not answer {time}.", fix=OVERLOADED)
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.WrongState(
                f"The controller{where} does not know this call.",
                fix="Upgrade the controller, or use an older client.",
            )
        case _:
            return HoldfastError(f"The controller{where} failed: {one_line(message)} ({code.name}).")


_MUTE = ("endpoint closing", "handshake timed out", "settings frame", "keepalive watchdog timeout", "ping timeout")
"""What gRPC says where it has given up waiting for a peer's next bytes, during the handshake or after it."""


def is_ours(error: grpc.RpcError) -> bool:
    """Whether the other side itself refused the call, rather than the link to it."""
    rich = rpc_status.from_call(error)
    return rich is not None and _from_rich(rich) is not None


def _violations(error: InvalidInput) -> Iterator[tuple[str, str]]:
    """(path, text) of each violation while there is room; what has none is counted."""
    room = VIOLATIONS_MAX
    for index, violation in enumerate(error.violations):
        text = f"{violation.problem} ({violation.fix})" if violation.fix else violation.problem
        path, text = _bounded(violation.path, MESSAGE_MAX), _bounded(text, MESSAGE_MAX)
        room -= len(path.encode()) + len(text.encode())
        if room < 0:
            yield "", f"and {len(error.violations) - index} more"
            return
        yield path, text


def _bounded(text: str, most: int) -> str:
    """The text, cut where it would take more than ``most`` characters to send."""
    if len(text) <= most and len(quote(text)) <= most:
        return text
    kept: list[str] = []
    for character in text[:most]:
        most -= len(quote(character))
        if most < 1:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _packed(message: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def _from_rich(rich: status_pb2.Status) -> HoldfastError | None:
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    for detail in rich.details:
        if not detail.Unpack(info):
            detail.Unpack(bad)
    cls = errors.ERRORS_BY_REASON.get(info.reason) if info.domain == DOMAIN else None
    if cls is None:
        return None
    if issubclass(cls, InvalidInput):
        what = one_line(rich.message.split(" has ", 1)[0]) if " has " in rich.message else "The request"
        return cls((Violation(one_line(v.field), one_line(v.description)) for v in bad.field_violations), what=what)
    return cls(one_line(rich.message), fix=one_line(info.metadata.get("fix", "")))


def is_mute(error: grpc.RpcError) -> bool:
    """Whether the other side takes connections, but has not said a word on them, nor closed them, in time."""
    message = (error.details() or "").lower()
    return error.code() is grpc.StatusCode.UNAVAILABLE and any(sign in message for sign in _MUTE)


def _unreachable(message: str, where: str, start: str) -> HoldfastError:
    lowered = message.lower()
    if any(sign in lowered for sign in _MUTE):
        return errors.Unavailable(f"What listens{where} takes connections, but does not answer.", fix=OVERLOADED)
    if "wrong_version_number" in lowered:
        return errors.Unavailable(
            f"What listens{where} does not speak TLS, so it is no controller.",
            fix="Check the address and the port (client.toml: controller).",
        )
    if "certificate" in lowered or "tls handshake" in lowered or "ssl" in lowered:
        return errors.Unauthenticated(
            f"The TLS handshake with the controller{where} failed.",
            fix="Check that the certificate is of this cluster and has not expired (client.toml: ca, cert, key).",
        )
    if "dns resolution failed" in lowered or "name resolution" in lowered:
        return errors.Unavailable(
            f"The name of the controller{where} can't be resolved.",
            fix="Check the address (client.toml: controller).",
        )
    if "failed to connect" in lowered and ("socket closed" in lowered or "connection reset" in lowered):
        # With TLS 1.3 a server that refuses the caller's certificate shows itself only in this way.
        return errors.Unavailable(
            f"What listens{where} closed the connection before a call could be made.",
            fix="Check that it is a controller, and that it accepts this certificate (client.toml: cert, key).",
        )
    return errors.Unavailable(
        f"No controller answers{where}.",
        fix=f"Start it: {start}" if start else "Check the address, and that holdfast-controller runs there.",
    )
