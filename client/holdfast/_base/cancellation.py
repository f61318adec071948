"""Cancellations that gRPC and asyncio make or take for something else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import anyio.lowlevel

P = ParamSpec("P")


@asynccontextmanager
async def not_cancelled_by_grpc() -> AsyncGenerator[None]:
    """Raise ``asyncio.InvalidStateError`` for a ``CancelledError`` of gRPC's own making.

    gRPC raises one where a call was cancelled by another task. No cancel scope takes it for its own, so it would end
    every task around, up to the whole program, and without an error.
    """
    try:
        yield
    except asyncio.CancelledError:
        await anyio.lowlevel.checkpoint_if_cancelled()
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise asyncio.InvalidStateError("the call was cancelled") from None


def connection_handler(handler: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """A handler for ``asyncio.start_server`` that simply ends when it is cancelled, as at the end of a program.

    Some releases of Python before 3.12 write the cancellation on stderr, with a traceback.
    """

    @functools.wraps(handler)
    async def ended(*args: P.args, **kwargs: P.kwargs) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await handler(*args, **kwargs)

    return ended
