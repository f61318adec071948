"""From a click command into the async SDK and back out."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Client

T = TypeVar("T")


def with_client(work: Callable[[Client], Awaitable[T]]) -> T:
    """Run ``work`` with a client of the configured cluster. Raises ``HoldfastError``, never a group of one."""
    # Its own words about a failed handshake would stand beside ours.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import anyio

    from holdfast import settings
    from holdfast.client import Client

    async def inside() -> T:
        async with Client(settings.load()) as client:
            return await work(client)

    try:
        return anyio.run(inside)
    except BaseExceptionGroup as group:
        raise _first_of(group) from None


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell of: one of ours where there is one."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if not isinstance(leaf, HoldfastError)), leaves[0])
