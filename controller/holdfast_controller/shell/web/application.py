"""The page's addresses: its files, signing in and out, and those of ``rest``, on a listener of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from holdfast._base.proto_values import timestamp
from holdfast.errors import HoldfastError, InvalidInput, NotFound, Violation
from holdfast_controller.core.model.accounts.web_sessions import LONGEST_S
from holdfast_controller.shell.rest import body
from holdfast_controller.shell.rest.calls import Aborted, Calls
from holdfast_controller.shell.rest.errors import Refusal, on_error
from holdfast_controller.shell.rest.guards import Bounds
from holdfast_controller.shell.rest.page_routes import page_routes
from holdfast_controller.shell.rest.printed import Json
from holdfast_controller.shell.rest.routes import routes
from holdfast_controller.shell.web.browsers import CALLS, COOKIE, Browsers, WithHeaders, cookies
from holdfast_controller.shell.web.page_files import PageFiles
from holdfast_controller.shell.web.signed_in import SignedIn

MAX_CONNECTIONS = 1_000
MAX_CONNECTIONS_OF_ONE = 400
"""From one address, behind which there may be many browsers."""
MAX_CALLS = 64
MAX_STREAMS = 500
MAX_STREAMS_OF_ONE = 8
"""Of one session: a browser opens six connections, whatever the number of its tabs."""
MAX_LOGINS = 8
"""Logins in progress, which have places of their own: before them anyone may ask."""
MAX_LOGIN_BYTES = 4_096
LOGIN_BODY_S = 5.0
_COOKIE = f"{COOKIE}={{}}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={{}}"


class Login:
    """The endpoints by which a browser signs in and out."""

    def __init__(self, signed_in: SignedIn) -> None:
        self._signed_in = signed_in
        self._bounds = Bounds(calls=MAX_LOGINS)

    async def sign_in(self, request: Request) -> Response:
        """A code for a cookie. Raises ``HoldfastError`` or ``Refusal``."""
        size = request.headers.get("content-length", "")
        chunked = "transfer-encoding" in request.headers  # of such a body its length says nothing
        if chunked or not size.isdecimal() or len(size) > 5 or int(size) > MAX_LOGIN_BYTES:
            raise Refusal(413, InvalidInput([Violation("", f"must have {MAX_LOGIN_BYTES:,} bytes at most")]))
        code = _code(await body.body(request, LOGIN_BODY_S))  # it takes no place while it comes
        address = request.client.host if request.client else ""
        agent = request.headers.get("user-agent", "")
        with self._bounds.call(""):
            made, cookie = await self._signed_in.sign_in(code, cookies(request), address, agent)
        answer = Json({"user": made.user, "end": timestamp(made.ends_at).ToJsonString()})
        answer.headers["Set-Cookie"] = _COOKIE.format(cookie, int(LONGEST_S))
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the browser's session, if it has one."""
        with self._bounds.call(""):
            session = self._signed_in.find(cookies(request))
            if session is not None:
                await self._signed_in.end(session)
        answer = Json({})
        answer.headers["Set-Cookie"] = _COOKIE.format("", 0)
        return answer


def login_routes(login: Login) -> list[Route]:
    """The addresses by which a browser signs in and out."""
    return [
        Route("/web/login", login.sign_in, methods=["POST"]),
        Route("/web/logout", login.sign_out, methods=["POST"]),
    ]


def _code(text: str) -> str:
    try:
        code = json.loads(text)["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        code = None
    if not isinstance(code, str):
        raise InvalidInput([Violation("code", "is missing", 'send {"code": "…"}')], what=body.WHAT)
    return code


def application(calls: Calls, signed_in: SignedIn, names: Callable[[], Collection[str]]) -> ASGIApp:
    """The ASGI application behind its checks. ``names`` gets those by which browsers may ask for us."""
    return WithHeaders(Browsers(page(calls, login_routes(Login(signed_in))), names, signed_in))


def page(calls: Calls, more: Collection[Route] = ()) -> Starlette:
    """The page's addresses without any check of who asks: each request has a ``context`` that says so."""
    files = PageFiles()

    async def asset(request: Request) -> Response:
        return files.asset(request)

    async def shell(request: Request) -> Response:
        if request.url.path.startswith((*CALLS, "/assets/")):
            raise Refusal(404, NotFound("There is nothing at this address."))
        return files.shell(request)

    raised = (Aborted, HoldfastError, Refusal, HTTPException, Exception)
    app = Starlette(
        routes=[
            *more,
            *page_routes(calls),
            *(route for route in routes(calls) if route.path.startswith("/v1/")),
            Route("/assets/{name}", asset, methods=["GET"]),
            Route("/{path:path}", shell, methods=["GET"]),
        ],
        exception_handlers=dict.fromkeys(raised, on_error),
    )
    app.router.redirect_slashes = False
    app.state.bounds = Bounds(MAX_CALLS, MAX_STREAMS, MAX_STREAMS_OF_ONE)
    return app
