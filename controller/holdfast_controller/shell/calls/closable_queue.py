"""A bounded queue that ends."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")

QUEUE_SIZE = 256


class EndingQueue(Generic[T]):
    """A queue that can be closed; items put before the end are still taken out."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[T] = asyncio.Queue(QUEUE_SIZE)
        self._filled = asyncio.Event()
        self._ended = False

    async def put(self, item: T) -> None:
        """Wait until the queue has a free slot, and add ``item``."""
        await self._items.put(item)
        self._filled.set()

    def end(self) -> None:
        """Close the queue: no item follows."""
        self._ended = True
        self._filled.set()

    async def get(self) -> T | None:
        """The next item; None at the end."""
        while self._items.empty():
            if self._ended:
                return None
            self._filled.clear()
            await self._filled.wait()
        return self._items.get_nowait()
