"""The caller of a call over HTTP, and the places that calls take."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast_controller.shell.calls.authz import caller_of
from holdfast_controller.shell.rest.calls import CallContext

Endpoint = Callable[[Request], Awaitable[Response]]
_ANSWERS_ONCE = "answers_once"


def bounded(endpoint: Endpoint) -> Endpoint:
    """The endpoint, for as many calls at once as the application has places for."""

    async def within(request: Request) -> Response:
        with request.app.state.bounds.call(party_of(request)):
            return await endpoint(request)

    vars(within)[_ANSWERS_ONCE] = True
    return within


def answers_once(endpoint: Endpoint) -> bool:
    """Whether it is one that ``bounded`` made, and so no stream."""
    return getattr(endpoint, _ANSWERS_ONCE, False) is True


def party_of(request: Request) -> str:
    """The caller, such as ``user/ann``; empty for one without an identity; if it has to, the call refuses that."""
    with contextlib.suppress(HoldfastError):
        if (caller := caller_of(context_of(request))) is not None:
            return caller.party
    return ""


def context_of(request: Request) -> CallContext:
    """The call's context: who is signed in, or the certificate of the connection's other end, and its address."""
    signed_in: CallContext | None = getattr(request.state, "context", None)
    if signed_in is not None:
        return signed_in
    peer = request.client.host if request.client else ""
    return CallContext(request.state.uris, peer, request.state.certificate, request.state.abort)
