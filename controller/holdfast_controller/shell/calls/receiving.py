"""Requests, each received once its caller has a place: what was sent of the others waits in gRPC, in this memory.

gRPC has no bound on all that one caller sends. It takes ``UNREAD_BYTES`` of each call, and of a call whose message is
waited for all of that message, though it may never end. So a message is waited for only after its caller has been let
in and has a place, and of one caller few come at a time. On the wire a call of one message is a stream of one: the
guard takes both from gRPC as streams, which leaves it the choice when to read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import grpc
from google.protobuf.message import DecodeError, Message

from holdfast._base import rpc_status
from holdfast._base.dataclass import dataclass
from holdfast._base.identity import Credential, Kind
from holdfast.errors import DeadlineExceeded, HoldfastError, InvalidInput, TooMany, Violation
from holdfast_controller.shell.calls import bounds
from holdfast_controller.shell.calls.rpc import Context

UNREAD_BYTES = 64 << 10
"""Of each call, sent before it is read. A caller who sends much has this and one message under way."""
COMING_MOST = 8
"""Requests of one caller that come at a time."""
RECEIVE_S = 30.0
"""A request that is not there by then, its wait for its turn included, is not waited for."""
LARGE_BYTES, LARGE_MOST = 64 << 10, 8
"""Requests of that size which one caller has in progress, of calls and of streams each: further calls wait."""
READ_OUT_MOST, READ_OUT_MESSAGES, READ_OUT_S = 2, 64, 0.5
"""Refused calls of one caller whose messages are read, and for how long: a status that overtakes a write is lost."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method, and its form."""

    name: str
    """SERVICE/METHOD."""
    one: bool
    """Whether its request is one message."""
    answers_many: bool

    @property
    def streams(self) -> bool:
        """Whether it lasts."""
        return self.answers_many or not self.one


@dataclass(frozen=True, slots=True)
class Admitted:
    """A call that was let in."""

    caller: Credential | None
    request: Any
    """The message, or the messages as they come."""
    peer: str
    place: contextlib.ExitStack
    """To be left when it ends."""


class Receiving:
    """Receives the requests of all callers."""

    def __init__(self) -> None:
        self._places: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._read_out: Counter[str] = Counter()

    async def one(
        self, caller: Credential | None, context: Context, held: contextlib.ExitStack, *, streams: bool
    ) -> tuple[Message, bool]:
        """The message of a call that has one, and whether it is known to be within its bounds.

        What a large one takes for as long as the call lasts is given back by ``held``.

        Raises ``DeadlineExceeded``; ``TooMany`` for a large one of a stream, beside others; ``InvalidInput`` for none,
        and for a large one beyond its bounds.
        """
        try:
            async with asyncio.timeout(RECEIVE_S), self._place(caller, "coming", COMING_MOST):
                message = await _first(context)
                if message.ByteSize() <= LARGE_BYTES:
                    return message, False
                bounds.check(message)  # before it waits: a list without end takes more memory than it had bytes
                large = self._place(caller, "streams" if streams else "calls", LARGE_MOST)
                if streams and large.locked():  # they may last for days, and what waits takes the place of others
                    problem = f"{LARGE_MOST} streams with requests of more than {LARGE_BYTES >> 10} KiB are open."
                    raise TooMany(problem, fix="Wait until some have ended, or ask for less in one.")
                await large.acquire()
                held.callback(large.release)
                return message, True
        except TimeoutError:
            problem = f"The request did not come within {RECEIVE_S:.0f} s."
            raise DeadlineExceeded(
                problem,
                fix=f"Of one caller {COMING_MOST} come at a time, and {LARGE_MOST} of more than"
                f" {LARGE_BYTES >> 10} KiB are in progress: wait for some to be answered.",
            ) from None

    def _place(self, caller: Credential | None, what: str, most: int) -> asyncio.Semaphore:
        """The places of a caller, for as long as one is taken or waited for.

        Callers without a certificate share none, or one could keep out all others: enrolment has its own bounds.
        """
        if caller is None:
            return asyncio.Semaphore(most)
        key = (caller.party, what)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = asyncio.Semaphore(most)
        return found

    async def turn_away(
        self, error: HoldfastError, caller: Credential | None, messages: AsyncIterator[Any] | None, context: Context
    ) -> NoReturn:
        """End a call with the error, once some of what it streams, if it does, is read."""
        party = caller.party if caller is not None else ""
        if messages is not None and self._read_out[party] < READ_OUT_MOST:
            self._read_out[party] += 1
            try:
                await _read_out(messages)
            finally:
                self._read_out[party] -= 1
                self._read_out += Counter()  # drops those who have none
        await context.abort_with_status(rpc_status.to_status(error))
        raise AssertionError("abort raises") from error


def each_bounded(messages: AsyncIterator[Any], caller: Credential | None) -> AsyncIterator[Any]:
    """The messages of a call that streams them, each checked as it comes."""
    return bounds.each(messages, from_host=caller is not None and caller.identity.kind is Kind.HOST)


async def _first(context: Context) -> Message:
    try:
        # Not by the iterator, which would have to be closed: asyncio begins a task for each that is left.
        found: Any = await context.read()
    except DecodeError as error:
        raise InvalidInput([Violation("", "can't be decoded")], what="The request") from error
    if found is grpc.aio.EOF:
        raise InvalidInput([Violation("", "has no message")], what="The request")
    message: Message = found
    return message


async def _read_out(messages: AsyncIterator[Any]) -> None:
    with contextlib.suppress(TimeoutError, DecodeError, grpc.RpcError):
        async with asyncio.timeout(READ_OUT_S):
            left = READ_OUT_MESSAGES
            async for _ in messages:
                left -= 1
                if not left:
                    return
