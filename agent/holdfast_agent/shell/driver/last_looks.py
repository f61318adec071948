"""Has the last words of a rank read before its failing exit is reported: what is done about it depends on them.

A rank may report its first step, or print it, and die before the next sample of its worker. Whatever the worker's
shim says meanwhile waits, in its order; of ranks that fail together one look serves all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection

import anyio.abc

from holdfast._daemon import log
from holdfast._session.reports import WorkerId

Take = Callable[[], None]
Look = Callable[[WorkerId, Collection[int]], Awaitable[None]]
"""Gets the ranks that have ended; it must return soon, whatever blocks."""


class LastLooks:
    """Messages about workers, held back where a look comes first."""

    def __init__(self, look: Look, tasks: anyio.abc.TaskGroup) -> None:
        self._look = look
        self._tasks = tasks
        self._waiting: dict[WorkerId, deque[tuple[Take, int | None]]] = {}

    def then(self, key: WorkerId, take: Take, *, ended: int | None = None) -> None:
        """Call ``take`` after all that waits for the same worker: at once where nothing does.

        ``ended``: the rank whose failing exit this is; then a look comes first.
        """
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append((take, ended))
        elif ended is None:
            take()
        else:
            self._waiting[key] = deque([(take, ended)])
            self._tasks.start_soon(self._serve, key)

    async def _serve(self, key: WorkerId) -> None:
        waiting = self._waiting[key]
        while waiting:
            due = 1
            if waiting[0][1] is not None:
                due = len(waiting)
                await self._look(key, [ended for _, ended in waiting if ended is not None])
            for _ in range(due):
                take, _ = waiting.popleft()
                try:
                    take()
                except (KeyError, TypeError, ValueError, OverflowError) as error:
                    # Where workers have the agent's own account, anything may sit in a shim's place.
                    log.warning("shim.message_invalid", worker=str(key), error=repr(error)[:200])
        del self._waiting[key]
