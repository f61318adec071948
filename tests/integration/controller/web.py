"""A controller's HTTP side, and a caller of it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from tests.integration.controller.cluster import Certificates, Controller

from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve

WITHIN_S = 180.0
POOL = {"replicaCount": "1", "processSpec": {"command": ["train"]}}
BODY: dict[str, Any] = {"displayName": "train", "jobSpec": {"workerPoolSpecs": [POOL]}}


def context(files: TlsFiles, *, certificate: bool = True) -> ssl.SSLContext:
    """What a client trusts and, unless told otherwise, shows."""
    made = ssl.create_default_context(cafile=str(files.ca))
    if certificate:
        made.load_cert_chain(files.cert, files.key)
    return made


def caller(port: int, files: TlsFiles, **more: Any) -> httpx.AsyncClient:
    """A client that nothing in the environment leads astray."""
    return httpx.AsyncClient(
        base_url=f"https://localhost:{port}", verify=context(files), trust_env=False, timeout=WITHIN_S, **more
    )


@dataclass
class Web:
    """A controller and the port of its JSON over HTTP."""

    controller: Controller
    port: int

    def as_(self, who: str, **more: Any) -> httpx.AsyncClient:
        """A client with that party's certificate."""
        return caller(self.port, self.controller.certificates.files[who], **more)


@contextlib.asynccontextmanager
async def running(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[tuple[Controller, int]]:
    """A controller in this process, and the port of its page; where it has none, that of JSON over HTTP."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    port: asyncio.Future[int] = loop.create_future()
    tell, page = port.set_result, bool(config.web.listen)
    async with asyncio.TaskGroup() as tasks:
        http, web = (None, tell) if page else (tell, None)
        serving = tasks.create_task(serve(config, ready.set_result, http, on_web=web))
        async with asyncio.timeout(WITHIN_S):
            controller = Controller(await ready, certificates)
            at = await port
        yield controller, at
        await controller.close()
        serving.cancel()
