"""The page that a user serves on a machine which others use too: what they get hold of is of no use to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import anyio.to_thread
import httpx
import pytest
from tests.integration.controller.cluster import WITHIN_S, Controller
from tests.integration.controller.conftest import certificates, config, controller

from holdfast._sdk.loopback_peer import account_of
from holdfast._sdk.web_bridge import WebBridge
from holdfast.client import Client
from holdfast.settings import ClientSettings

__all__ = ["certificates", "config", "controller"]
pytestmark = pytest.mark.anyio
NOBODY = 65_534
PAGE = {"X-Holdfast": "page", "Sec-Fetch-Site": "same-origin"}

# Serves one request, and makes one of its own to the page with the cookie that came with it; prints the status.
THIEF = """
import http.client, socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
visitor, _ = server.accept()
asked = visitor.recv(65536).decode()
visitor.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
cookie = next(line.split(": ", 1)[1] for line in asked.split("\\r\\n") if line.lower().startswith("cookie:"))
page = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
page.request("GET", "/v1/me", headers={"X-Holdfast": "page", "Cookie": cookie})
print(page.getresponse().status, flush=True)
"""


@pytest.fixture
async def address(controller: Controller) -> AsyncIterator[str]:
    files = controller.certificates.files["user/ann"]
    settings = ClientSettings(f"127.0.0.1:{controller.port}", files.ca, files.cert, files.key)
    async with Client(settings) as client, WebBridge(client.web).serving() as found:
        yield found


@pytest.fixture(scope="module")
def python() -> str:
    """One that nobody may run."""
    for found in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if found:
                subprocess.run([found, "-c", ""], user=NOBODY, group=NOBODY, extra_groups=(), check=True)
                return found
    pytest.skip("nobody may run a Python here")


@pytest.fixture
def thief(address: str, python: str) -> Iterator[subprocess.Popen[bytes]]:
    port = address.partition("/login#")[0].rpartition(":")[2]
    with subprocess.Popen(
        [python, "-c", THIEF, port], stdout=subprocess.PIPE, cwd="/", user=NOBODY, group=NOBODY, extra_groups=()
    ) as started:
        yield started
        started.kill()


async def said(thief: subprocess.Popen[bytes]) -> int:
    assert thief.stdout is not None
    return int(await anyio.to_thread.run_sync(thief.stdout.readline))


@pytest.mark.require("root")
async def test_a_cookie_that_a_browser_gives_to_another_users_port_opens_the_page_to_its_own_user_alone(
    address: str, thief: subprocess.Popen[bytes]
) -> None:
    base, _, code = address.partition("/login#")
    port = await said(thief)
    async with httpx.AsyncClient(trust_env=False, timeout=WITHIN_S, headers=PAGE) as ann:
        assert (await ann.post(f"{base}/web/login", json={"code": code})).status_code == 200
        assert (await ann.get(f"{base}/v1/me")).status_code == 200
        assert (await ann.get(f"http://127.0.0.1:{port}/")).status_code == 200
    assert await said(thief) == 403


def test_who_connects_is_told_by_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        assert account_of(ours.getsockname(), server.getsockname()) == os.geteuid()
        assert account_of(("127.0.0.1", 1), server.getsockname()) is None
        assert account_of(ours.getsockname(), server.getsockname(), "/proc/there/is/none") is None
