"""The way from a route to the handler of its gRPC method."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import Message

from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Credential
from holdfast._base.rpc_status import code_name
from holdfast.errors import TooMany
from holdfast_controller.shell.calls.audit_words import StreamWords, made
from holdfast_controller.shell.calls.authz import Guard, caller_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from holdfast_controller.shell.rest.guards import Bounds
    from holdfast_controller.shell.rest.shared_answers import Shared, SharedAnswers


@dataclass(frozen=True)
class Asked:
    """A question besides its message: the address with its query, encodings that are taken, and the places."""

    address: str
    encodings: str
    bounds: Bounds
    after: int | None = None
    """Of one who follows the answer: the position of the log that it may not be older than."""


class Aborted(Exception):
    """The handler has ended the call with ``status``."""

    def __init__(self, status: grpc.Status) -> None:
        super().__init__(status.details)
        self.status = status


class CallContext:
    """Stands in for ``grpc.aio.ServicerContext`` in a call that came over HTTP."""

    def __init__(
        self,
        uris: tuple[str, ...],
        peer: str,
        certificate: str,
        abort: Callable[[], None] = lambda: None,
        signed_in: Credential | None = None,
        session: str = "",
    ) -> None:
        """``uris``: the names in the verified client ``certificate``, a PEM text; ``peer``: the address alone;
        ``abort`` ends the connection at once. Of a browser: who is ``signed_in``, by which ``session``.
        """
        self.signed_in, self.session = signed_in, session
        self.abort = abort
        self._auth: dict[str, tuple[bytes, ...]] = {
            "x509_subject_alternative_name": tuple(uri.encode() for uri in uris),
            "x509_pem_cert": (certificate.encode(),) if certificate else (),
        }
        self._peer = peer

    @classmethod
    def relayed(cls, auth: Mapping[str, Iterable[bytes]], peer: str, abort: Callable[[], None]) -> CallContext:
        """The context of a call that is made within one over gRPC, by the same caller."""
        made = cls((), peer, "", abort)
        made._auth = {key: tuple(values) for key, values in auth.items()}
        return made

    def auth_context(self) -> Mapping[str, tuple[bytes, ...]]:
        """Identity of the peer under gRPC's own keys."""
        return self._auth

    def peer(self) -> str:
        """Address of the peer."""
        return self._peer

    def invocation_metadata(self) -> tuple[()]:
        """No header of a request is a gRPC header."""
        return ()

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """Ends the call. Raises ``Aborted``."""
        raise Aborted(status)


class Calls:
    """The handlers by gRPC method, such as ``/holdfast.v1.JobService/GetJob``, behind the guard of all calls."""

    def __init__(self, services: Mapping[str, object], guard: Guard, shared: SharedAnswers | None = None) -> None:
        """``services``: each servicer under the full name of its service. ``shared``: answers that readers share."""
        self._services = services
        self._guard = guard
        self._shared = shared

    def caller(self, context: CallContext) -> str:
        """The party that calls, such as ``user/ann``. Raises ``Unauthenticated``."""
        caller = caller_of(context)
        return caller.party if caller is not None else ""

    async def one(self, method: str, request: Message, context: CallContext, *, here: bool = False) -> Any:
        """The answer of a unary method, or its form for use ``here``. Raises ``Aborted`` or ``HoldfastError``."""
        caller = await self._admit(method, request, context)
        with self._noted(method, caller, request, context), self._guard.concurrency.permit(caller, streams=False):
            answer = await self._handler(method, here=here)(request, context)
        self._guard.note(method.lstrip("/"), caller, request, "OK", made=made(answer), peer=context.peer())
        return answer

    async def shown(
        self,
        method: str,
        request: Message,
        context: CallContext,
        show: Callable[[Any], Awaitable[Response]],
        asked: Asked,
    ) -> Response:
        """The response that ``show`` makes of the answer of a unary method that changes nothing. Raises as ``one``.

        Readers of the page who have the same rights and ask for the same share it.
        """
        if self._shared is None:
            return await show(await self.one(method, request, context, here=True))
        shared, path = self._shared, method.lstrip("/")
        caller = await self._admit(method, request, context)
        party = caller.party if caller is not None else ""

        def place() -> contextlib.ExitStack:
            with contextlib.ExitStack() as held:
                held.enter_context(asked.bounds.call(party))
                held.enter_context(self._guard.concurrency.permit(caller, streams=False))
                return held.pop_all()

        async def render() -> Response:
            return await show(await self._handler(method, here=True)(request, context))

        async def found(after: int | None) -> Shared:
            while True:
                rights = self._guard.rights(path, caller, request)
                key = asked.address, method, rights
                answer = await shared.answer(key, party, place, render, after)
                if rights == self._guard.rights(path, caller, request):
                    return answer
                self._guard.authorise(path, caller, request, context.peer())

        async def again(after: int) -> Shared:
            self._guard.authorise(path, caller, request, context.peer(), bounded=True)
            return await found(after)

        with self._noted(method, caller, request, context), asked.bounds.aside(party):
            answer = await found(asked.after)
            if asked.after is not None:
                return answer.followed(again)
            await shared.in_turn()
        self._guard.note(path, caller, request, "OK", peer=context.peer())
        return await answer.response(asked.encodings)

    @contextlib.contextmanager
    def _noted(
        self, method: str, caller: Credential | None, request: Message, context: CallContext
    ) -> Iterator[None]:
        """Take note of how a call ends that fails within."""
        try:
            yield
        except TooMany as error:
            self._guard.rates.refused(caller)
            self._note(method, caller, request, context, code_name(error), error.message)
            raise
        except Aborted as aborted:
            self._note(method, caller, request, context, aborted.status.code.name, aborted.status.details or "")
            raise
        except BaseException:
            self._note(method, caller, request, context, "CANCELLED", "")
            raise

    async def many(self, method: str, request: Message, context: CallContext) -> AsyncGenerator[Any, None]:
        """The answers of a streaming method, which raise as ``one`` does. Close it after use."""
        caller = await self._admit(method, request, context, streams=True)
        words = StreamWords(method, request)

        def note(code: str, message: str = "") -> None:
            self._note(method, caller, request, context, code, words.at_end(message))

        cut, path = _Cut(context.abort), method.lstrip("/")
        try:
            with (
                self._guard.concurrency.permit(caller, streams=True),
                self._guard.open(path, caller, request, cut, cut),
            ):
                async with contextlib.aclosing(self._handler(method)(request, context)) as answers:
                    async for answer in answers:
                        if begun := words.at_first_answer():
                            self._guard.record(path, caller, request, "OK", begun, peer=context.peer())
                        yield answer
        except TooMany as error:
            self._guard.rates.refused(caller)
            note(code_name(error), error.message)
            raise
        except Aborted as aborted:
            note(aborted.status.code.name, aborted.status.details or "")
            raise
        except BaseException:
            note("CANCELLED")
            raise
        note("OK")

    async def _admit(
        self, method: str, request: Message, context: CallContext, *, streams: bool = False
    ) -> Credential | None:
        caller = caller_of(context)
        await self._guard.admit(method.lstrip("/"), caller, request, context.peer(), streams=streams)
        return caller

    def _note(
        self,
        method: str,
        caller: Credential | None,
        request: Message,
        context: CallContext,
        code: str,
        message: str,
    ) -> None:
        self._guard.note(method.lstrip("/"), caller, request, code, message, peer=context.peer())

    def _handler(self, method: str, *, here: bool = False) -> Any:
        _, service, name = method.split("/")
        found = getattr(self._services[service], name)
        return getattr(self._services[service], f"{name}Here", found) if here else found


class _Cut:
    """Over HTTP a stream that may not go on has no status to end with: its connection is, and nothing more."""

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort

    async def abort_with_status(self, status: grpc.Status) -> None:
        """No-op: over HTTP the error is sent by the route, not through the gRPC context."""

    def done(self) -> bool:
        """Always False; ended calls are not among the open streams."""
        return False

    def cancel(self) -> object:
        """End the connection, whose reader then closes the stream."""
        return self._abort()
