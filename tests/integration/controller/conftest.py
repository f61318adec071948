"""A controller served in this process over mutual TLS, and the certificates of those who call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.controller.cluster import Certificates, Controller

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki
from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.main.server import serve


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    directory = tmp_path / "pki"
    directory.mkdir()
    pki.create_ca("test", directory)
    made = Certificates(directory, {})
    for who in ("host/host-0", "host/host-1", "user/ann", "user/bob"):
        kind, _, name = who.partition("/")
        made.files[who] = pki.issue(directory, Identity("test", Kind(kind), name), directory, name)
    made.files["stranger"] = pki.issue(directory, Identity("other", Kind.USER, "eve"), directory, "eve")
    made.files["controller"] = _controller(directory)
    return made


def _controller(directory: Path) -> TlsFiles:
    return pki.issue(directory, Identity("test", Kind.CONTROLLER, "c"), directory, "controller", server=True)


@pytest.fixture
def config(tmp_path: Path, certificates: Certificates) -> ControllerConfig:
    tls = certificates.files["controller"]
    return ControllerConfig(
        "127.0.0.1:0", tmp_path / "state", tls.ca, tls.cert, tls.key, "test", admins=("ann", "bob")
    )


@pytest.fixture
async def controller(config: ControllerConfig, certificates: Certificates) -> AsyncIterator[Controller]:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(serve(config, ready.set_result))
        async with asyncio.timeout(20):
            port = await ready
        served = Controller(port, certificates)
        yield served
        await served.close()
        serving.cancel()
