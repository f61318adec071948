"""The stream of changes with the answers that its reader follows: each change brings along what it changes of them.

So a page asks once for what it shows, and gets what becomes of it, in one write for all. Each answer is asked for
here as by a call of the reader's own: with the rights of the moment, and shared by all who may see the same.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route

from holdfast._base.printable import json_text
from holdfast.errors import HoldfastError, NotFound
from holdfast.v1 import cluster_pb2
from holdfast_controller.shell.rest.calls import Aborted
from holdfast_controller.shell.rest.context import Endpoint, answers_once
from holdfast_controller.shell.rest.errors import Refusal
from holdfast_controller.shell.rest.shared_answers import Followed, Queue, Shared
from holdfast_controller.shell.rest.streams import change_event, gzip_block

MOST = 32
"""Answers that one stream follows."""
WITHIN_S = 0.5
"""For so long a change waits for what it changes; what takes longer follows it."""
_OF_JOB = re.compile(r"/v1/jobs/([^/:?]+)")
_OF_HOST = re.compile(r"/v1/hosts/([^/:?]+)")

Change = cluster_pb2.WatchChangesResponse


class _Question:
    """An answer that is followed."""

    def __init__(self, request: Request, asked: str) -> None:
        """``asked``: a path, and behind a # the tag of the answer that the reader has."""
        self.address, _, self.tag = asked.partition("#")
        self.work: asyncio.Task[bytes] | None = None
        path, _, query = self.address.partition("?")
        state = {**request.scope["state"], "after": 0}
        self._scope = {**request.scope, "path": path, "query_string": query.encode(), "state": state}
        self._endpoint = _endpoint(request, self._scope)
        self._ask: Callable[[int], Awaitable[Shared]] | None = None
        self._again = True
        job, host = _OF_JOB.match(path), _OF_HOST.match(path)
        self._job, self._host = job and job[1], host and host[1]

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer at this address."""
        return self._endpoint is not None

    def note(self, change: Change) -> None:
        """Look again after a change that it may be about."""
        if self._job is not None:
            self._again |= change.all or self._job in change.jobs
        elif self._host is not None:
            self._again |= change.all or bool(change.jobs) or self._host in change.hosts
        else:
            self._again = True

    def begin(self, cursor: int) -> None:
        """Look, if that is due, at the answer as of this position of the log, or a later one."""
        if self._again and self.work is None and self._endpoint is not None:
            self._again = False
            self.work = asyncio.get_running_loop().create_task(self._look(self._endpoint, cursor))

    async def _look(self, endpoint: Endpoint, cursor: int) -> bytes:
        try:
            if self._ask is None:
                self._scope["state"]["after"] = cursor
                found = await endpoint(Request(self._scope))
                if not isinstance(found, Followed):
                    raise NotFound("It can't be followed.")
                self._ask, shared = found.again, found.shared
            else:
                shared = await self._ask(cursor)
        except (Aborted, HoldfastError, Refusal, HTTPException):
            # Its reader asks, and hears why.
            self._endpoint = None
            return _event("answer", {"path": self.address})
        frame = await shared.frame(self.address, self.tag)
        self.tag = shared.tag
        return frame


def _endpoint(request: Request, scope: dict[str, object]) -> Endpoint | None:
    """The one that answers a GET at the scope's path, once; None where there is none."""
    if not str(scope["path"]).startswith("/v1/"):
        return None
    get = {**scope, "method": "GET"}
    for route in request.app.router.routes:
        if isinstance(route, Route) and route.path.startswith("/v1/"):
            match, found = route.matches(get)
            if match is Match.FULL:
                scope |= found
                endpoint: Endpoint = route.endpoint
                return endpoint if answers_once(endpoint) else None
    return None


async def followed(
    request: Request, asked: list[str], queue: Queue, changes: AsyncGenerator[Change, None]
) -> AsyncGenerator[bytes, None]:
    """The changes, each with what it changes of the answers that are ``asked`` for, as blocks of gzip."""
    loop = asyncio.get_running_loop()
    questions = [_Question(request, each) for each in asked[:MOST]]
    cursor = 0
    coming = loop.create_task(_next(changes))
    try:
        while True:
            await asyncio.wait({coming, *_works(questions)}, return_when=asyncio.FIRST_COMPLETED)
            parts = []
            if coming.done():
                change = coming.result()
                if change is None:
                    return
                parts.append(_block(change.SerializeToString()))
                if not cursor:
                    carried = [each.address for each in questions if each.is_answered]
                    parts.append(_event("follows", {"paths": carried}))
                cursor = change.cursor
                coming = loop.create_task(_next(changes))
                for each in questions:
                    each.note(change)
                await queue.in_turn()  # all streams get it at the same moment
            for each in questions:
                each.begin(cursor)
            if works := _works(questions):
                await asyncio.wait(works, timeout=WITHIN_S if parts else 0)
            for each in questions:
                if each.work is not None and each.work.done():
                    parts.append(each.work.result())
                    each.work = None
                    each.begin(cursor)
            if some := b"".join(parts):
                await queue.in_turn()
                yield some
    finally:
        unread: set[asyncio.Task[Any]] = {coming, *_works(questions)}
        for work in unread:
            work.cancel()
        await asyncio.gather(*unread, return_exceptions=True)
        await changes.aclose()


@functools.lru_cache(maxsize=16)
def _block(change: bytes) -> bytes:
    """The event of a change, once for all streams that get the same."""
    return gzip_block(change_event(Change.FromString(change)))


def _event(name: str, data: object) -> bytes:
    return gzip_block(f"event: {name}\ndata: {json_text(data)}\n\n".encode())


def _works(questions: list[_Question]) -> set[asyncio.Task[bytes]]:
    return {each.work for each in questions if each.work is not None}


async def _next(changes: AsyncGenerator[Change, None]) -> Change | None:
    return await anext(changes, None)
