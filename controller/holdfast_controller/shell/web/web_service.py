"""``WebService``: codes for browsers, and the sessions that they began."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from holdfast.errors import NotFound, WrongState
from holdfast.v1 import web_pb2, web_pb2_grpc
from holdfast_controller.core.model.accounts.web_sessions import Session
from holdfast_controller.shell.calls.rpc import Context, caller_name, streaming, unary
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.web.signed_in import SignedIn

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class WebService(web_pb2_grpc.WebServiceServicer):
    """Serves users whom the guard has authorised: see ``Where.OWN``."""

    def __init__(self, signed_in: SignedIn) -> None:
        self._signed_in = signed_in
        self.reached_at: Callable[[], tuple[str, int]] = lambda: ("", 0)
        """Name and port of the page's listener; port 0 where there is none."""
        self.relayed: Callable[[], ASGIApp] | None = None
        """Makes the page for requests that come over gRPC."""
        self.opened = asyncio.Event()
        """Set once both are as the settings have them, which is later than a controller's first answers."""
        self._app: ASGIApp | None = None

    @unary
    async def CreateLogin(
        self, request: web_pb2.CreateLoginRequest, context: Context
    ) -> web_pb2.CreateLoginResponse:
        await self.opened.wait()
        host, port = self.reached_at()
        if not port:
            fix = "Use `holdfast web --local`, or have an admin set listen in [web] of controller.toml."
            raise WrongState("This controller serves no web page.", fix=fix)
        code, end = self._signed_in.code(caller_name(context))
        return web_pb2.CreateLoginResponse(code=code, end=timestamp(end), host=host, port=port)

    @unary
    async def ListSessions(
        self, request: web_pb2.ListSessionsRequest, context: Context
    ) -> web_pb2.ListSessionsResponse:
        user = None if request.all else request.user or caller_name(context)
        current = getattr(context, "session", "")
        found = [_listed(each, current) for each in self._signed_in.listed(user)]
        return web_pb2.ListSessionsResponse(sessions=found)

    @unary
    async def EndSession(self, request: web_pb2.EndSessionRequest, context: Context) -> web_pb2.EndSessionResponse:
        user = request.user or caller_name(context)
        found = [each for each in self._signed_in.listed(user) if each.id == request.id]
        if not found:
            problem = f"{user} has no browser session {request.id!r}."
            raise NotFound(problem, fix="See: holdfast web sessions")
        for session in found:
            await self._signed_in.end(session)
        return web_pb2.EndSessionResponse()

    @streaming
    async def Relay(
        self, request: web_pb2.RelayRequest, context: Context
    ) -> AsyncGenerator[web_pb2.RelayResponse, None]:
        # Only here: a controller whose page is not asked for loads none of it.
        from holdfast_controller.shell.web.relay import relay

        await self.opened.wait()
        if self._app is None:
            assert self.relayed is not None
            self._app = self.relayed()
        async with contextlib.aclosing(relay(self._app, request, context)) as parts:
            async for part in parts:
                yield part


def _listed(session: Session, current: str) -> web_pb2.WebSession:
    return web_pb2.WebSession(
        id=session.id,
        user=session.user,
        begin=timestamp(session.began_at),
        last_use=timestamp(session.used_at),
        end=timestamp(session.ends_at),
        address=session.address,
        agent=session.agent,
        current=session.id == current,
    )
