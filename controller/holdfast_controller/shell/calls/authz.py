"""The guard in front of every servicer: no call and no stream gets past it unless a rule lets it.

It is the one place that authorises; handlers only ask who calls. It takes the caller from the certificate of the
connection, what the call is about from the request, and asks ``core.access``. An open stream is looked at again
whenever the rights of its caller change, and is ended when it may not go on. A connection is judged by its
certificate when it is opened; rights are judged at each call.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from holdfast._base import rpc_status
from holdfast._base.identity import Credential, Kind
from holdfast._daemon import log
from holdfast._daemon.metrics.series import Series
from holdfast._security import certificate, tls
from holdfast.errors import HoldfastError, Unauthenticated, Unavailable
from holdfast_controller.core.access.audit import Entry
from holdfast_controller.core.access.rules import ANSWERED_ALIKE, RULES, Registry, refusal
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.calls import audit_words, bounds
from holdfast_controller.shell.calls.audit_words import Ended, StreamWords, made, subject_of
from holdfast_controller.shell.calls.call_targets import target_of
from holdfast_controller.shell.calls.caller_limits import CallRates, ConcurrencyLimits
from holdfast_controller.shell.calls.receiving import Admitted, Method, Receiving, each_bounded
from holdfast_controller.shell.calls.rpc import Context, peer_of
from holdfast_controller.shell.driver import Driver


class Aborts(Protocol):
    """The part of an open stream's context that is used here."""

    async def abort_with_status(self, status: grpc.Status) -> object:
        """End the stream with a status."""


class Ends(Protocol):
    """The task that serves an open stream."""

    def done(self) -> bool:
        """Whether the stream has ended."""

    def cancel(self) -> object:
        """Cancel the stream."""


@dataclass(eq=False)
class _Stream:
    """A stream that is open now."""

    method: str
    caller: Credential
    request: Any
    context: Aborts
    task: Ends


class Guard(grpc.aio.ServerInterceptor):
    """Guards the servers of one controller. Other entrances call ``authorise`` and, when done, ``note``."""

    def __init__(self, driver: Driver, cluster: str, audit: Audit) -> None:
        self._driver, self._cluster, self._audit = driver, cluster, audit
        self.series = Series()
        """Calls by method and status, and the durations of unary ones that were let through."""
        self._streams: defaultdict[str, set[_Stream]] = defaultdict(set)
        self._cuts: set[asyncio.Task[None]] = set()
        self.concurrency = ConcurrencyLimits()
        self.rates = CallRates()
        self._receiving = Receiving()
        self._handlers: dict[str, tuple[Any, Any]] = {}
        """By method: a handler, and the same behind the guard."""
        self.callers: dict[str, str] = {}
        """By connection, as gRPC names its other end: the party that called last. ``ConnectionBounds`` forgets."""

    @property
    def registry(self) -> Registry:
        """Authorise with the registry as it is now."""
        return Registry(self._cluster, self._driver.cluster.people, self._driver.reactor.policies.admins)

    def authorise(
        self, method: str, caller: Credential | None, request: object, peer: str = "", *, bounded: bool = False
    ) -> None:
        """Return if ``caller`` may make the call, within bounds; else keep the refusal in the audit log and raise it.

        ``method`` is SERVICE/METHOD; ``request`` its message, None for one that streams them; ``peer`` the address
        that the call came from; ``bounded``: the message is known to be within its bounds. Raises ``Denied``,
        ``NotFound`` for a job that the caller may not know of, ``Unauthenticated``, or ``InvalidInput`` for a message
        beyond its bounds.
        """
        problem = refusal(self.registry, method, caller, target_of(self._driver.cluster, method, request))
        if problem is None and not bounded and isinstance(request, Message):
            problem = _exceeded(request)
        if problem is not None:
            self._refuse(method, caller, request, peer, problem)
            raise problem

    def _refuse(
        self, method: str, caller: Credential | None, request: object, peer: str, problem: HoldfastError
    ) -> None:
        """Keep a refusal in the audit log, and count it."""
        who, call = caller.party if caller is not None else "", method.rpartition(".")[2]
        code = rpc_status.code_name(problem)
        entry = Entry(time.time(), who, peer, call, subject_of(method, request), code, problem.message)
        self._audit.refused(entry, self.registry.trail(caller))
        self._count_refusal(method, caller, code)

    def _count_refusal(self, method: str, caller: Credential | None, code: str) -> None:
        self.rates.refused(caller)
        self.series.add(fam.RPCS, method, code)

    async def admit(
        self, method: str, caller: Credential | None, request: object, peer: str, *, streams: bool
    ) -> None:
        """Return when it is the caller's turn, and it may make the call. Raises ``TooMany``, and as ``authorise``."""
        await self.rates.take_turn(caller, streams=streams)
        await self._let_in(method, caller, request, peer)

    async def _let_in(
        self, method: str, caller: Credential | None, request: object, peer: str, *, bounded: bool = False
    ) -> None:
        """Return if it may make the call. Raises as ``authorise``."""
        if caller is not None and caller.identity.kind is Kind.USER and not self._commits(method, caller, request):
            await self._driver.still_leading()  # no answer, and no refusal, is older than the call
        self.authorise(method, caller, request, peer, bounded=bounded)

    def _commits(self, method: str, caller: Credential, request: object) -> bool:
        """Whether the call is let through and proves by a commit of its own that this controller leads."""
        rule, target = RULES.get(method), target_of(self._driver.cluster, method, request)
        return rule is not None and rule.changes and refusal(self.registry, method, caller, target) is None

    def rights(self, method: str, caller: Credential | None, request: object) -> Hashable:
        """Facts that decide, besides the request, what an answer shows: equal for those who may see the same of it."""
        if caller is None or caller.identity.kind is not Kind.USER:
            return caller
        name, target = caller.identity.name, target_of(self._driver.cluster, method, request)
        own = target.owner == name or method not in ANSWERED_ALIKE
        return self.registry.seen(name), name if own else ""

    def note(
        self,
        method: str,
        caller: Credential | None,
        request: object,
        outcome: str,
        message: str = "",
        *,
        made: str = "",
        peer: str = "",
    ) -> None:
        """Keep in the audit log how a call ended that was let through; only calls that change something count.

        ``outcome`` is OK or the name of a gRPC status, ``message`` its sentence, ``made`` what came of it, such as
        ``job/ID``.
        """
        self.series.add(fam.RPCS, method, outcome)
        self.record(method, caller, request, outcome, message, made=made, peer=peer)

    def record(
        self,
        method: str,
        caller: Credential | None,
        request: object,
        outcome: str,
        message: str,
        *,
        made: str = "",
        peer: str = "",
    ) -> None:
        """Write what has become of a call into the audit log, if the call changes something."""
        rule = RULES.get(method)
        if rule is not None and rule.changes:
            who = caller.party if caller is not None else ""
            about, detail = made, ""
            if request is not None:
                about, detail = made or subject_of(method, request), audit_words.detail(method, request)
            call = method.rpartition(".")[2]
            message = ": ".join(filter(None, (detail, message)))
            entry = Entry(time.time(), who, peer, call, about, outcome, message)
            self._audit.write(entry, self.registry.trail(caller))

    def access_changed(self, party: str) -> None:
        """End the party's open streams that it may not read any more."""
        for stream in list(self._streams.get(party, ())):
            target = target_of(self._driver.cluster, stream.method, stream.request)
            problem = refusal(self.registry, stream.method, stream.caller, target)
            if problem is not None:
                log.info("stream.cancelled", party=party, method=stream.method)
                self._begin_cut(stream, problem)

    def end_streams(self) -> None:
        """End all open streams, since the controller stops. Its reader reconnects and continues where it stood."""
        stopping = Unavailable("The controller stops.", fix="Try again when it is back.")
        for stream in [stream for streams in self._streams.values() for stream in streams]:
            self._begin_cut(stream, stopping)

    def _begin_cut(self, stream: _Stream, problem: HoldfastError) -> None:
        cut = asyncio.get_running_loop().create_task(_cut(stream, problem))
        self._cuts.add(cut)
        cut.add_done_callback(self._cuts.discard)

    def open_streams(self) -> Counter[str]:
        """Number of open streams, by method."""
        return Counter(stream.method for streams in self._streams.values() for stream in streams)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        details: grpc.HandlerCallDetails,
    ) -> Any:
        """The handler of the call, behind the guard; None where there is none."""
        handler = await continuation(details)
        if handler is None:
            return None
        known = self._handlers.get(details.method)
        if known is None or known[0] is not handler:
            guarded = self._guarded(details.method.lstrip("/"), handler)
            known = self._handlers[details.method] = handler, guarded
        return known[1]

    def _guarded(self, method: str, handler: Any) -> Any:
        forms: dict[tuple[bool, bool], Any] = {
            (False, False): handler.unary_unary,
            (False, True): handler.unary_stream,
            (True, False): handler.stream_unary,
            (True, True): handler.stream_stream,
        }
        answers_many = bool(handler.response_streaming)
        call = Method(method, one=not handler.request_streaming, answers_many=answers_many)
        serve = forms[not call.one, answers_many]
        wrap = self._yielding if inspect.isasyncgenfunction(serve) else self._returning
        # One message, too, is taken as a stream of one: so it is read only once its caller has a place.
        form = grpc.stream_stream_rpc_method_handler if answers_many else grpc.stream_unary_rpc_method_handler
        return form(wrap(call, serve), handler.request_deserializer, handler.response_serializer)

    def _returning(self, call: Method, serve: Callable[..., Any]) -> Callable[..., Any]:
        method = call.name

        async def guarded(messages: Any, context: Context) -> Any:
            begun = await self._admit(call, messages, context)
            caller, request, peer = begun.caller, begun.request, begun.peer
            opened = self.open(method, caller, request, context) if call.streams else contextlib.nullcontext()
            began = time.perf_counter()
            ended = Ended(context, functools.partial(self.note, method, caller, request, peer=peer))
            try:
                with begun.place, opened:
                    answer = await serve(request, ended)
            except BaseException:
                ended.note_end()
                raise
            finally:
                if not call.streams:
                    self.series.observe(fam.RPC, time.perf_counter() - began, method)
            self.note(method, caller, request, "OK", made=made(answer), peer=peer)
            return answer

        return guarded

    def _yielding(self, call: Method, serve: Callable[..., Any]) -> Callable[..., Any]:
        method = call.name

        async def guarded(messages: Any, context: Context) -> AsyncIterator[Any]:
            admitted = await self._admit(call, messages, context)
            caller, request, peer = admitted.caller, admitted.request, admitted.peer
            words = StreamWords(method, request)

            def note(outcome: str, message: str = "") -> None:
                self.note(method, caller, request, outcome, words.at_end(message), peer=peer)

            ended = Ended(context, note)
            try:
                with admitted.place, self.open(method, caller, request, context):
                    async with contextlib.aclosing(serve(request, ended)) as answers:
                        async for answer in answers:
                            if begun := words.at_first_answer():
                                self.record(method, caller, request, "OK", begun, peer=peer)
                            yield answer
            except BaseException:
                ended.note_end()
                raise
            note("OK")

        return guarded

    async def _admit(self, call: Method, messages: AsyncIterator[Any], context: Context) -> Admitted:
        """The call, received and let in, with its place among those of its caller; otherwise it ends here."""
        # Only now: gRPC crashes when asked for the address of a call that has ended, as a late handler would.
        peer = peer_of(context)
        caller: Credential | None = None
        with contextlib.ExitStack() as place:
            try:
                caller = caller_of(context)
                if caller is not None:
                    self.callers[context.peer()] = caller.party
                await self.rates.take_turn(caller, streams=call.streams)
                request, bounded = await self._receive(call, caller, context, place, peer)
                await self._let_in(call.name, caller, request, peer, bounded=bounded)
            except HoldfastError as error:
                place.close()
                await self._receiving.turn_away(error, caller, None if call.one else messages, context)
            received = each_bounded(messages, caller) if request is None else request
            return Admitted(caller, received, peer, place.pop_all())

    async def _receive(
        self,
        call: Method,
        caller: Credential | None,
        context: Context,
        place: contextlib.ExitStack,
        peer: str,
    ) -> tuple[Message | None, bool]:
        """Take a place; the request of a call that has one, and if it is known to be within its bounds."""
        try:
            place.enter_context(self.concurrency.permit(caller, streams=call.streams, sends=not call.one))
            if call.one:
                return await self._receiving.one(caller, context, place, streams=call.streams)
        except HoldfastError as error:
            if (rule := RULES.get(call.name)) is not None and rule.changes:
                self._refuse(call.name, caller, None, peer, error)
            else:  # to read too much at once is nothing that an admin looks for
                self._count_refusal(call.name, caller, rpc_status.code_name(error))
            raise
        return None, False

    @contextlib.contextmanager
    def open(
        self, method: str, caller: Credential | None, request: Any, context: Aborts, work: Ends | None = None
    ) -> Iterator[None]:
        """Within, a stream is looked at again whenever its caller's rights change; ``work`` is the current task
        unless given.
        """
        task: Ends | None = work or asyncio.current_task()
        if caller is None or task is None:
            yield
            return
        stream = _Stream(method, caller, None if hasattr(request, "__aiter__") else request, context, task)
        self._streams[caller.party].add(stream)
        try:
            yield
        finally:
            self._streams[caller.party].discard(stream)
            if not self._streams[caller.party]:
                del self._streams[caller.party]


def caller_of(context: tls.Certified) -> Credential | None:
    """The caller that a certificate names, or who is signed in; None without either.

    Raises ``Unauthenticated`` for a certificate without an identity.
    """
    signed_in = getattr(context, "signed_in", None)
    if isinstance(signed_in, Credential):
        return signed_in
    auth = context.auth_context()
    shown = next(iter(auth.get("x509_pem_cert") or ()), None)
    if shown is None:
        return None
    return replace(_read(shown), identity=tls.caller_in(auth))


@functools.lru_cache(maxsize=4096)
def _read(pem: bytes) -> Credential:
    try:
        return certificate.parse(pem.decode("ascii"))
    except ValueError as error:
        raise Unauthenticated(f"The certificate can't be read: {error}") from error


async def _cut(stream: _Stream, problem: HoldfastError) -> None:
    """End a stream with the sentence, then its handler; nothing is done to one that has ended meanwhile."""
    if stream.task.done():
        return
    # Its reader may leave at this moment; gRPC says so in several ways.
    try:
        with contextlib.suppress(grpc.aio.AbortError, grpc.aio.UsageError, grpc.aio.InternalError, grpc.RpcError):
            await stream.context.abort_with_status(rpc_status.to_status(problem))
    finally:
        stream.task.cancel()


def _exceeded(request: Message) -> HoldfastError | None:
    try:
        bounds.check(request)
    except HoldfastError as error:
        return error
    return None
