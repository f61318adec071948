"""Checks before the routes: host names, concurrent requests, and patience with slow readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import Denied, InvalidInput, Unavailable, Violation
from holdfast_controller.shell.rest.errors import Refusal, answer

MAX_CALLS = 32
"""Calls in progress, streams aside; gRPC sessions share the loop with them."""
MAX_CALLS_OF_ONE = 16
MAX_STREAMS = 128
MAX_STREAMS_OF_ONE = 16
SEND_S = 60.0
"""A caller that takes nothing in for so long is cut off."""


class Bounds:
    """Counts what is in progress."""

    def __init__(
        self, calls: int = MAX_CALLS, streams: int = MAX_STREAMS, streams_of_one: int = MAX_STREAMS_OF_ONE
    ) -> None:
        self._most = calls, streams, streams_of_one
        self._calls: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()

    @contextlib.contextmanager
    def call(self, caller: str) -> Iterator[None]:
        """A place among the calls, also while the request comes. Raises ``Unavailable``."""
        most = self._most[0]
        if self._calls.total() >= most:
            raise Unavailable(f"{most} calls over HTTP are in progress.", fix="Try again in a moment.")
        if self._calls[caller] >= MAX_CALLS_OF_ONE:
            who = f"{caller or 'One caller'} has {MAX_CALLS_OF_ONE} calls over HTTP in progress."
            raise Unavailable(who, fix="Wait for one of them.")
        self._calls[caller] += 1
        try:
            yield
        finally:
            _leave(self._calls, caller)

    @contextlib.contextmanager
    def aside(self, caller: str) -> Iterator[None]:
        """Within, one who has a place among the calls leaves it: to wait for the work of others takes none."""
        _leave(self._calls, caller)
        try:
            yield
        finally:
            self._calls[caller] += 1

    def stream(self, caller: str) -> contextlib.ExitStack:
        """A place among the streams, to be closed after. Raises ``Unavailable``."""
        _, most, most_of_one = self._most
        if self._streams.total() >= most:
            raise Unavailable(f"{most} streams over HTTP are open.", fix="Try again later.")
        if self._streams[caller] >= most_of_one:
            fix = "Close one of them first."
            raise Unavailable(f"{caller} has {most_of_one} streams over HTTP open.", fix=fix)
        self._streams[caller] += 1
        place = contextlib.ExitStack()
        place.callback(_leave, self._streams, caller)
        return place


def _leave(places: Counter[str], caller: str) -> None:
    places[caller] -= 1
    if not places[caller]:
        del places[caller]


class Guards:
    """Refuses requests for another host name, and those made by a foreign web page.

    A browser attaches a user's certificate to whatever any page asks of us, and a name that its owner lets point
    at our address makes that page's own origin of us. So the Host must be a name of our certificate, and a request
    that a browser has made for a page must come from the same origin.
    """

    def __init__(self, app: ASGIApp, names: Callable[[], Collection[str]]) -> None:
        """``names`` gets those of the server's certificate, lower case, addresses without brackets."""
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        patient = patient_send(scope, send)
        try:
            self._check(Request(scope))
        except Refusal as refusal:
            await answer(refusal)(scope, receive, patient)
        else:
            await self._app(scope, receive, patient)

    def _check(self, request: Request) -> None:
        host = check_host(request, self._names())
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if (origin is not None and origin != f"https://{host}") or site not in ("same-origin", "none"):
            raise Refusal(403, Denied("Pages of other sites may not call the controller."))


def patient_send(scope: Scope, send: Send) -> Send:
    """``send`` that cuts off a caller who takes nothing in for ``SEND_S``."""

    async def patient(message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                await send(message)
        except TimeoutError:
            scope["state"]["abort"]()

    return patient


def check_host(request: Request, names: Collection[str]) -> str:
    """The Host of a request, if it is among ``names``, one of which may begin with ``*.``. Raises ``Refusal``."""
    host = request.headers.get("host", "")
    name = _name(host)
    if name not in names and f"*.{name.partition('.')[2]}" not in names:
        fix = f"use one of {', '.join(sorted(names))}, or add it to names in controller.toml"
        error = InvalidInput([Violation("Host", "is no name in the controller's certificate", fix)])
        raise Refusal(421, error)
    return host


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
