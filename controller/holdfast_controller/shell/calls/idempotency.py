"""Turns a call into a wish that is acted on once, where its caller gave it an id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.step.commands import Asked, Once

ID_LENGTH = 128


def once(by: str, request: Any, make: Callable[[int], Asked]) -> Callable[[int], Asked | Once]:
    """What ``Driver.ask`` is to feed for a request of ``by``. Raises ``InvalidInput`` for too long an id."""
    request_id: str = request.request_id
    if len(request_id) > ID_LENGTH:
        problem = f"is longer than {ID_LENGTH} characters"
        raise InvalidInput([Violation("requestId", problem, "use a UUID")])
    if not request_id:
        return make
    digest = _digest(request)
    return lambda token: Once(by, request_id, digest, make(token))


def _digest(request: Message) -> str:
    """Of everything but the id, the kind of call included."""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    name = request.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(name + b"\0" + content.SerializeToString(deterministic=True)).hexdigest()
