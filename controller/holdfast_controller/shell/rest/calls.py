"""The way from a route to the handler of its gRPC method."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message

from holdfast.identity import Identity, Kind
from holdfast_controller.shell.rpc import authorise


class Aborted(Exception):
    """The handler has ended the call with ``status``."""

    def __init__(self, status: grpc.Status) -> None:
        super().__init__(status.details)
        self.status = status


class CallContext:
    """What a handler asks of its ``grpc.aio.ServicerContext``, for a call that came over HTTP."""

    def __init__(self, uris: tuple[str, ...], peer: str) -> None:
        self._auth = {"x509_subject_alternative_name": tuple(uri.encode() for uri in uris)}
        self._peer = peer

    def auth_context(self) -> Mapping[str, tuple[bytes, ...]]:
        """The names in the verified client certificate, under gRPC's own key."""
        return self._auth

    def peer(self) -> str:
        """Where the call comes from."""
        return self._peer

    def invocation_metadata(self) -> tuple[()]:
        """No header of a request is a gRPC header."""
        return ()

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """Ends the call. Raises ``Aborted``."""
        raise Aborted(status)


Authorise = Callable[[str, CallContext, Message], Identity]
"""(method, context, request) → the caller; raises ``Unauthenticated`` or ``Denied``."""


def users_of(cluster: str) -> Authorise:
    """Lets every user of the cluster call everything; the handlers may be stricter."""

    def check(method: str, context: CallContext, request: Message) -> Identity:
        return authorise(context, Kind.USER, cluster)  # type: ignore[arg-type]

    return check


class Calls:
    """The handlers by gRPC method, such as ``/holdfast.v1.JobService/GetJob``; each call is authorised first."""

    def __init__(self, services: Mapping[str, object], authorise: Authorise) -> None:
        """``services``: each servicer under the full name of its service."""
        self._services = services
        self._authorise = authorise

    def caller(self, method: str, request: Message, context: CallContext) -> Identity:
        """Who calls. Raises what ``authorise`` raises."""
        return self._authorise(method, context, request)

    async def one(self, method: str, request: Message, context: CallContext) -> Any:
        """The answer of a unary method. Raises ``Aborted`` or ``HoldfastError``."""
        self.caller(method, request, context)
        return await self._handler(method)(request, context)

    def many(self, method: str, request: Message, context: CallContext) -> AsyncGenerator[Any, None]:
        """The answers of a streaming method, which raise as ``one`` does. Close it after use."""
        self.caller(method, request, context)
        answers: AsyncGenerator[Any, None] = self._handler(method)(request, context)
        return answers

    def _handler(self, method: str) -> Any:
        _, service, name = method.split("/")
        return getattr(self._services[service], name)
