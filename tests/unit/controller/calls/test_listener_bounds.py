"""Connections of one caller over HTTP, who has as many addresses as a /64 network of IPv6."""

from __future__ import annotations

from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from holdfast_controller.shell.rest.listener import _Protocol

pytestmark = pytest.mark.anyio


class Connection:
    """A transport of asyncio's, from ``address``."""

    def __init__(self, address: str) -> None:
        self._peer = (address, 4711, 0, 0)
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self._peer if name == "peername" else None

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        """Nothing is to be closed."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Never asked."""


async def test_connections_of_one_network_of_ipv6_are_those_of_one_caller() -> None:
    config = Config(app, http=_Protocol, ws="none", lifespan="off", log_config=None)
    config.load()
    state, made = ServerState(), []
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:1::1"):
        transport: Any = Connection(address)
        protocol = _Protocol(config, state, {"bounds": (10, 2)})
        protocol.connection_made(transport)
        made.append((protocol, transport))
    assert [transport.aborted for _, transport in made] == [False, False, True, False]
    for protocol, _ in made:
        protocol.connection_lost(None)
