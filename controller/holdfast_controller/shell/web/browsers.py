"""Checks of what a browser sends, before the routes: its host name, where the request comes from, and its session.

A page of another site can make a browser send requests here, with its cookie where SameSite isn't kept. So what
reads or changes anything must carry a header that only our own page can set, since no other origin is ever let do so;
what else there is, the document and its files, is the same for everyone, and may be linked to from anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast._daemon.tls_door import network_of
from holdfast.errors import Denied, Unauthenticated
from holdfast_controller.core.model.accounts.token_buckets import Buckets
from holdfast_controller.shell.rest.calls import CallContext
from holdfast_controller.shell.rest.errors import Refusal, answer
from holdfast_controller.shell.rest.guards import check_host, patient_send
from holdfast_controller.shell.web.signed_in import SignedIn

COOKIE = "__Host-holdfast"
"""The prefix binds it to this host name and to TLS: no neighbour under the same domain can set it."""
PAGE_HEADER = "x-holdfast"
OUTSIDERS_BURST, OUTSIDERS_PER_S = 200, 20
"""Requests of one address that no session makes. Each beyond that is the last of its connection."""
CALLS = ("/v1/", "/web/")
"""Addresses of calls; all others are the document's."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Browsers:
    """Lets the page's own requests through, each as the caller who is signed in."""

    def __init__(self, app: ASGIApp, names: Callable[[], Collection[str]], signed_in: SignedIn) -> None:
        """``names`` gets those of the listener's certificate, lower case, addresses without brackets."""
        self._app = app
        self._names = names
        self._signed_in = signed_in
        self._outsiders = Buckets(OUTSIDERS_BURST, OUTSIDERS_PER_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = self._signed_in.find(cookies(request))
        patient = patient_send(scope, send if session is not None else self._paced(request, send))
        try:
            check_host(request, self._names())
            check_source(request, f"https://{request.headers['host']}")
            if not request.url.path.startswith("/v1/"):
                await self._app(scope, receive, patient)
                return
            if session is None:
                raise Refusal(401, Unauthenticated("You are not signed in.", fix="Open the page by: holdfast web"))
        except Refusal as refusal:
            await answer(refusal)(scope, receive, patient)
            return
        caller, abort = self._signed_in.caller(session), scope["state"]["abort"]
        peer = f"{request.client.host if request.client else ''} (web)"
        scope["state"]["context"] = CallContext((str(caller.identity),), peer, "", abort, caller, session.id)
        with self._signed_in.request(session, abort):
            await self._app(scope, receive, patient)

    def _paced(self, request: Request, send: Send) -> Send:
        """``send`` for an outsider: one that asks too fast loses its connection, and waits for the next one's turn."""
        address = network_of(request.client.host) if request.client else ""
        return send if self._outsiders.spend(address, time.monotonic()) else _last(send)


def _last(send: Send) -> Send:
    """``send`` that ends the connection with this answer."""

    async def last(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Connection"] = "close"
        await send(message)

    return last


def check_source(request: Request, own: str) -> None:
    """Refuse what a page of another origin than ``own`` asks for, but for following a link to ours.

    Raises ``Refusal``.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    if not request.url.path.startswith(CALLS):
        followed = request.headers.get("sec-fetch-mode") == "navigate"
        framed = request.headers.get("sec-fetch-dest", "document") not in ("document", "empty")
        if site not in ("same-origin", "none") and (not followed or framed):
            raise Refusal(403, Denied("Pages of other sites may link to this page, and nothing else."))
        return
    origin = request.headers.get("origin", own)
    if site != "same-origin" or origin != own or PAGE_HEADER not in request.headers:
        raise Refusal(403, Denied("Only the page itself may ask this.", fix="Programs use http_port, or gRPC."))


def cookies(request: Request) -> list[str]:
    """Every value that the request gives our cookie: more than one is some other's doing."""
    parts = [part for header in request.headers.getlist("cookie") for part in header.split(";")]
    pairs = [part.strip().partition("=") for part in parts]
    return [value for name, _, value in pairs if name == COOKIE]


class WithHeaders:
    """Adds what holds for every answer: what the page may load and run, and that it is in no frame."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, add)
