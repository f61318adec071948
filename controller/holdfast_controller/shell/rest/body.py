"""Requests in: bodies, within bounds, and the parameters behind the question mark."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request

from holdfast import spec
from holdfast.errors import DeadlineExceeded, InvalidInput, Violation
from holdfast.spec.parse import text as spec_text
from holdfast.v1 import job_pb2
from holdfast_controller.shell.calls.slices import apart
from holdfast_controller.shell.rest.errors import Refusal

MAX_BODY = 4 << 20
"""Bytes, as for a message over gRPC."""
MAX_DRAINED = 4 * MAX_BODY
"""So much of a body that is too large is read all the same: who still writes does not see the refusal."""
BODY_S = 30.0
"""A body that is not there by then is not waited for."""
WHAT = "The body"
_JSON = re.compile(r"json(;enum-encoding=\w+)?")
_FORMS = {"alt": _JSON, "$alt": _JSON, "prettyPrint": re.compile(r"true|false"), "pp": re.compile(r"1|0")}
"""Parameters about the form of an answer, with their values. Names of an enum can be read where numbers can."""


async def body(request: Request, within_s: float = BODY_S) -> str:
    """The whole body as text. Raises ``Refusal`` for what is too large, too slow or of another type."""
    _check_type(request)
    length = request.headers.get("content-length", "")
    # A number of any more digits is larger, too: Python refuses to read thousands of them.
    long = length.isascii() and length.isdecimal() and (len(length) > 18 or int(length) > MAX_BODY)
    if long and "expect" in request.headers:
        raise _too_large()
    content, size = bytearray(), 0
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_DRAINED:
                    break
                if size <= MAX_BODY:
                    content += chunk
    except TimeoutError:
        error = DeadlineExceeded(f"The body did not come within {within_s:.0f} s.")
        raise Refusal(408, error, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise InvalidInput([Violation("", "ended before all of it had come")], what=WHAT) from None
    if size > MAX_BODY:
        raise _too_large()
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidInput([Violation("", "is not UTF-8 text")], what=WHAT) from None


async def no_body(request: Request) -> None:
    """For calls that take none: nothing, or an empty object. Raises ``InvalidInput``."""
    if not has_body(request):
        return
    text = await body(request)
    if text.strip() not in ("", "{}"):
        raise InvalidInput([Violation("", "must be empty: this call takes no fields")], what=WHAT)


async def job(request: Request) -> job_pb2.CustomJob:
    """The CustomJob in the body, held to every rule of a job file. Raises ``InvalidSpec`` or ``Refusal``."""
    text = await body(request)
    # A spec of a mebibyte takes tens of milliseconds, in which no session may stand still.
    return await apart(_read_job, text)


async def patch(request: Request) -> str:
    """The JSON merge patch in the body, empty without one. Raises ``Refusal``."""
    return await body(request) if has_body(request) else ""


def _read_job(text: str) -> job_pb2.CustomJob:
    return spec.job_to_proto(spec.parse(spec_text.load_json(text, source=WHAT), what=WHAT))


def parameters(request: Request, known: Iterable[str]) -> dict[str, list[str]]:
    """The query's values by name, snake_case names too. Raises ``InvalidInput`` for a name that is not known.

    Clients of the reference say how answers are to be printed (``alt=json``); that is taken as long as it is JSON.
    """
    names = {name: name for name in known}
    names |= {_snake(name): name for name in names}
    found: dict[str, list[str]] = {}
    wrong = []
    for name, value in request.query_params.multi_items():
        if name in _FORMS:
            if not _FORMS[name].fullmatch(value):
                wrong.append(
                    Violation(name, f"must be {_FORMS[name].pattern.partition('(')[0]}, not {value[:60]!r}")
                )
        elif name in names:
            found.setdefault(names[name], []).append(value)
        else:
            listed = ", ".join(dict.fromkeys(names.values()))
            wrong.append(Violation(name[:60], "is no known parameter", f"known: {listed}" if listed else ""))
    if wrong:
        raise InvalidInput(wrong)
    return found


def single(values: dict[str, list[str]], name: str) -> str:
    """The one value of a parameter, empty where it is not given. Raises ``InvalidInput`` for several."""
    given = values.get(name, [""])
    if len(given) > 1:
        raise InvalidInput([Violation(name, "is given twice", "keep one of them")])
    return given[0]


def whole(values: dict[str, list[str]], name: str, *, most: int = 2**31 - 1) -> int | None:
    """A parameter that is a number from 0 to ``most``; None where it is not given. Raises ``InvalidInput``."""
    text = single(values, name)
    return _number(name, text, most) if text else None


def numbers(values: dict[str, list[str]], name: str) -> list[int]:
    """Every value of a parameter that may be given several times, or with commas."""
    parts = [part for value in values.get(name, ()) for part in value.split(",")]
    return [_number(name, part, 2**31 - 1) for part in parts]


def truth(values: dict[str, list[str]], name: str) -> bool:
    """A parameter that is true or false; false where it is not given. Raises ``InvalidInput``."""
    text = single(values, name)
    if text not in ("", "true", "false"):
        raise InvalidInput([Violation(name, "must be true or false")])
    return text == "true"


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) > most:
        raise InvalidInput([Violation(name, f"must be a whole number from 0 to {most:,}")])
    return int(text)


def cursor(request: Request, given: dict[str, list[str]]) -> int:
    """The place in a stream after which it goes on; 0 where none is given. Raises ``InvalidInput``."""
    found = whole(given, "cursor", most=2**63 - 1)
    if found is not None:
        return found
    # What an EventSource says when it comes back.
    last = request.headers.get("last-event-id", "")
    return int(last) if last.isascii() and last.isdecimal() and len(last) < 19 else 0


def set_time(message: Message, given: dict[str, list[str]], name: str = "since") -> None:
    """Set the message's time of this name, where it is given. Raises ``InvalidInput``."""
    if value := single(given, name):
        try:
            getattr(message, name).FromJsonString(value)
        except ValueError:
            fix = "such as 2026-01-31T08:00:00Z"
            raise InvalidInput([Violation(name, "must be a time", fix)]) from None


def log_streams(given: dict[str, list[str]]) -> list[job_pb2.LogStream.ValueType]:
    """The streams that ``stream`` names. Raises ``InvalidInput``."""
    found = [part for value in given.get("stream", ()) for part in value.split(",")]
    known = {name.removeprefix("LOG_STREAM_"): number for name, number in job_pb2.LogStream.items() if number}
    if wrong := [each for each in found if each not in known]:
        raise InvalidInput([Violation("stream", f"must be {' or '.join(known)}, not {wrong[0]!r}")])
    return [known[each] for each in found]


def has_body(request: Request) -> bool:
    """Whether the request says that it has a body."""
    return request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers


def _check_type(request: Request) -> None:
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        fix = "Send it with the header Content-Type: application/json"
        raise Refusal(415, InvalidInput([Violation("", "must be JSON in UTF-8", fix)], what=WHAT))


def _too_large() -> Refusal:
    error = InvalidInput([Violation("", f"has more than {MAX_BODY:,} bytes")], what=WHAT)
    return Refusal(413, error, {"Connection": "close"})


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
