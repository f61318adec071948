"""Where a job's URL leads the controller: to the host that an admin allowed, whatever the host's name server says."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from holdfast_controller.shell.notify import sender as delivering
from holdfast_controller.shell.notify.allowed_hosts import AllowedHosts
from holdfast_controller.shell.notify.channels import Target
from holdfast_controller.shell.notify.render import test_message as message_of_a_test
from holdfast_controller.shell.notify.sender import NotDelivered, Sender

pytestmark = pytest.mark.anyio
HOST = "hooks.example"
REBINDING = Path(__file__).with_name("rebinding.py")


@dataclass
class Receiver:
    port: int = 0
    status: str = "200 OK"
    heads: list[bytes] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    """As the client asked for in the TLS handshake."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        await reader.read()
        writer.close()


@asynccontextmanager
async def receiver(tls: ssl.SSLContext | None = None, **how: Any) -> AsyncIterator[Receiver]:
    made = Receiver(**how)
    if tls is not None:
        tls.sni_callback = lambda connection, name, context: made.names.append(name)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


@dataclass
class NameServer:
    """Answers differently each time, as one that rebinds a name does."""

    answers: list[list[str]]
    asked: list[str] = field(default_factory=list)

    def resolve(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


async def send(url: str, *allowed: str) -> None:
    sender = Sender()
    try:
        await sender.send(
            Target(url, "hook", allowed=AllowedHosts((HOST, *allowed))), message_of_a_test("x", "t", 1.0)
        )
    finally:
        await sender.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.7", "::1"])
async def test_a_name_that_leads_inside_is_not_called(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    names = NameServer([["93.184.216.34", address]])
    monkeypatch.setattr(delivering, "resolve", names.resolve)
    async with receiver() as inside:
        with pytest.raises(NotDelivered, match=r"not public; an admin can allow it: notification_hosts") as said:
            await send(f"http://{HOST}:{inside.port}/x")
        assert address not in str(said.value), "users learn nothing of the site's addresses"
        assert inside.heads == []


async def test_a_name_is_resolved_once_and_called_by_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = NameServer([["127.0.0.1"], ["10.0.0.7"]])
    monkeypatch.setattr(delivering, "resolve", names.resolve)
    async with receiver() as hook:
        await send(f"http://ann:pw@{HOST}:{hook.port}/x?y=1", "127.0.0.1")
        assert names.asked == [HOST]
        head = hook.heads[0].decode().lower()
        assert head.startswith("post /x?y=1 ") and f"\r\nhost: {HOST}:{hook.port}\r\n" in head
        assert "\r\nauthorization: basic " in head
        with pytest.raises(NotDelivered, match="not public"):
            await send(f"http://{HOST}:{hook.port}/x", "127.0.0.1")
        assert len(hook.heads) == 1


async def test_tls_is_for_the_name_and_not_for_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setattr(delivering, "resolve", lambda host: ["127.0.0.1"])
    for identity, fits in ((HOST, True), ("127.0.0.1", False)):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(identity).configure_cert(tls)
        async with receiver(tls) as hook:
            url = f"https://{HOST}:{hook.port}/"
            if fits:
                await send(url, "127.0.0.0/8")
            else:
                with pytest.raises(NotDelivered, match="could not be reached"):
                    await send(url, "127.0.0.0/8")
            assert hook.names == [HOST]
            assert len(hook.heads) == fits


async def test_the_next_address_is_tried_where_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "resolve", lambda host: ["127.0.0.2", "127.0.0.1"])
    async with receiver() as hook:
        await send(f"http://{HOST}:{hook.port}/", "127.0.0.0/8")
        assert len(hook.heads) == 1


async def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "resolve", lambda host: ["127.0.0.1"])
    async with receiver() as inside, receiver(status="302 Found\r\nLocation: http://127.0.0.1:1/") as hook:
        hook.status = f"302 Found\r\nLocation: http://127.0.0.1:{inside.port}/"
        with pytest.raises(NotDelivered, match="HTTP status 302"):
            await send(f"http://{HOST}:{hook.port}/", "127.0.0.1")
        assert inside.heads == [] and len(hook.heads) == 1


async def test_a_proxy_of_the_controller_gets_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivering, "resolve", lambda host: pytest.fail("the proxy resolves"))
    async with receiver() as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        await send(f"http://{HOST}:8080/x")
        assert proxy.heads[0].startswith(f"POST http://{HOST}:8080/x ".encode())


@pytest.mark.require("root", "netns", "mount")
async def test_a_real_name_server_that_rebinds_a_name_leads_nowhere(tmp_path: Any) -> None:
    """Asked by the system's own resolver, in a network of its own: each delivery asks once, and calls what it heard."""
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:2\n")
    script = f"ip link set lo up && mount --bind {resolver} /etc/resolv.conf && exec {sys.executable} {REBINDING}"
    done = await asyncio.to_thread(
        subprocess.run, ["unshare", "-n", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    first, *others = said["became"]
    assert first == ["delivered", 1]
    assert [asked for _, asked in others] == [1, 1]
    assert all("not public" in problem for problem, _ in others)
    assert said["got"] == {"127.0.0.5": 1, "127.0.0.6": 0}
