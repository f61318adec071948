"""The address of the page where there are several controllers: that of the one that leads, which knows the code."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from holdfast._sdk.web_calls import WebCalls
from holdfast.settings import ClientSettings
from holdfast.v1 import web_pb2

pytestmark = pytest.mark.anyio


class Channel:
    """Answers every call with a login on any name."""

    def unary_unary(self, *_: Any, **__: Any) -> Any:
        async def call(*_: Any, **__: Any) -> web_pb2.CreateLoginResponse:
            return web_pb2.CreateLoginResponse(code="c0de", port=8443)

        return call

    unary_stream = unary_unary


async def test_the_page_is_opened_at_the_controller_that_leads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as leads, socket.socket() as stands_by:
        stands_by.bind(("127.0.0.2", 0))  # and listens nowhere
        ports = stands_by.getsockname()[1], leads.getsockname()[1]
        files = (Path("ca.pem"), Path("user.pem"), Path("user.key"))
        settings = ClientSettings(f"127.0.0.2:{ports[0]},127.0.0.1:{ports[1]}", *files)
        web = WebCalls(cast("grpc.aio.Channel", Channel()), settings)
        assert await web.address() == "https://127.0.0.1:8443/login#c0de"
