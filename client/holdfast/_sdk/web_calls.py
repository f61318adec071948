"""The SDK's calls about the web page (``client.web``): a browser's way in, and the browsers that are signed in."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, cast

import anyio
import grpc

from holdfast._base import addresses
from holdfast._sdk.transport import Calling
from holdfast.settings import ClientSettings
from holdfast.v1 import web_pb2, web_pb2_grpc

if TYPE_CHECKING:
    from holdfast.v1.web_pb2 import WebSession


LOOK_S = 2.0
"""For each address of a controller that may not be there."""


class WebCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast("web_pb2_grpc.WebServiceAsyncStub", web_pb2_grpc.WebServiceStub(channel))

    async def address(self, path: str = "/") -> str:
        """Address that opens the page at ``path`` in one browser, once, within a minute, signed in as the caller."""
        made = await self._unary(self._stub.CreateLogin, web_pb2.CreateLoginRequest())
        host = made.host or await self._leads_at()
        name = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"https://{name}:{made.port}/login#{made.code}" + (f"&to={path}" if path != "/" else "")

    async def _leads_at(self) -> str:
        """Host of the controller that leads, which alone knows the code: one that stands by listens nowhere."""
        several = [each.rpartition(":") for each in addresses.parse(self.settings.controller, "controller")]
        for host, _, port in several if len(several) > 1 else ():
            with contextlib.suppress(OSError, TimeoutError), anyio.fail_after(LOOK_S):
                stream = await anyio.connect_tcp(host.removeprefix("[").removesuffix("]"), int(port))
                await stream.aclose()
                return host
        return several[0][0]

    async def relay(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> AsyncGenerator[web_pb2.RelayResponse]:
        """Make one request to the page as the caller; yields the status with its headers, then parts of the body."""
        request = web_pb2.RelayRequest(method=method, target=target, headers=headers, body=body)
        async with contextlib.aclosing(self._stream(self._stub.Relay(request))) as parts:
            async for part in parts:
                yield part

    async def list_sessions(self, user: str = "", *, all: bool = False) -> list[WebSession]:
        """Browsers in which a user is signed in, the caller unless one is named; with ``all`` everyone's."""
        request = web_pb2.ListSessionsRequest(user=user, all=all)
        return list((await self._unary(self._stub.ListSessions, request)).sessions)

    async def end_session(self, id: str, user: str = "") -> None:
        """Sign a browser out; ``user`` is whose it is, if not the caller's own."""
        await self._unary(self._stub.EndSession, web_pb2.EndSessionRequest(id=id, user=user))
