"""Makes an error of the cancellation that gRPC raises where a call was cancelled by another task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.lowlevel


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
