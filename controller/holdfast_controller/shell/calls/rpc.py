"""Shared by every handler: the caller, errors as rich statuses, and idempotent requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message

from holdfast._base import rpc_status
from holdfast._security import tls
from holdfast.errors import HoldfastError
from holdfast_controller.core.step.commands import Command, Once
from holdfast_controller.shell.calls.slices import TURNS

Req = TypeVar("Req")
Res = TypeVar("Res")
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
"""What a handler is called with."""


def caller_name(context: Context) -> str:
    """The name of the user or host that calls. ``Guard`` has let it through; nothing is decided here."""
    return tls.caller(context).name


def peer_of(context: Context) -> str:
    """The address in a peer's name, such as ``127.0.0.1`` in ``ipv4:127.0.0.1:4711``."""
    _, _, address = unquote(context.peer()).partition(":")
    return address.rpartition(":")[0].strip("[]")


def unary(
    handler: Callable[[Any, Req, Context], Coroutine[Any, Any, Res]],
) -> Callable[[Any, Req, Context], Awaitable[Res]]:
    """A unary handler that waits for its caller's turn, and whose ``HoldfastError`` becomes the call's status."""

    @functools.wraps(handler)
    async def guarded(self: Any, request: Req, context: Context) -> Res:
        try:
            return await TURNS.answer(functools.partial(handler, self, request, context))
        except HoldfastError as error:
            await context.abort_with_status(rpc_status.to_status(error))
            raise AssertionError("abort raises") from error

    return guarded


def streaming(
    handler: Callable[[Any, Req, Context], AsyncGenerator[Res, None]],
) -> Callable[[Any, Req, Context], AsyncGenerator[Res, None]]:
    """Like ``unary``, for a handler that yields many answers."""

    @functools.wraps(handler)
    async def guarded(self: Any, request: Req, context: Context) -> AsyncGenerator[Res, None]:
        try:
            async with contextlib.aclosing(handler(self, request, context)) as answers:
                async for answer in answers:
                    yield answer
        except HoldfastError as error:
            await context.abort_with_status(rpc_status.to_status(error))

    return guarded


@contextlib.asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], when_done: Callable[[], object]) -> AsyncIterator[None]:
    """Run ``work`` while the block runs; ``when_done`` has to wake the block up when it ends by itself.

    For blocks of a handler that yield: a task group there would turn the closing of the handler, as happens when
    a caller leaves while an answer is being written, into an error. Leaving the block cancels ``work`` and waits
    for it; what ``work`` raised is raised here, unless the block is being left by an exception of its own.
    """
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(lambda _: when_done())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        failed = not task.cancelled() and task.exception() is not None
    if failed:
        task.result()


def once(by: str, request: Any, make: Callable[[int], Command]) -> Callable[[int], Command | Once]:
    """Wrap a command's maker so that a request id acts once."""
    request_id: str = request.request_id
    if not request_id:
        return make
    digest = _digest(request)
    return lambda token: Once(by, request_id, digest, make(token))


def _digest(request: Message) -> str:
    """Fingerprint of a request: everything but the id, the kind of call included."""
    content = type(request)()
    content.CopyFrom(request)
    content.ClearField("request_id")
    name = request.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(name + b"\0" + content.SerializeToString(deterministic=True)).hexdigest()
