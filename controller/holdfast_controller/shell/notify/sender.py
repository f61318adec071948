"""Sends one notification: a POST of ours, or a service's own form by way of apprise."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from holdfast._base.version import __version__
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.notify import apprise_sender
from holdfast_controller.shell.notify.channels import Target
from holdfast_controller.shell.notify.render import in_words

if TYPE_CHECKING:
    import httpx

for _name in ("httpx", "httpcore"):
    # They log each URL, and with it the secrets in it.
    logging.getLogger(_name).setLevel(logging.CRITICAL)

WEBHOOK_S = 10.0
SERVICE_S = 30.0
"""All that a delivery may take, from the name's resolution to the last byte."""


class NotDelivered(Exception):
    """Why not, in words without any secret."""


class Sender:
    """Delivers notifications over HTTP. Close it after use."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def send(self, target: Target, entry: OutboxEntry) -> None:
        """Returns once the receiver has taken it. Raises ``NotDelivered``."""
        await (self._call_service(target, entry) if target.service else self._post(target, entry))

    async def close(self) -> None:
        """Closes idle connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _post(self, target: Target, entry: OutboxEntry) -> None:
        async with self._opening:
            if self._client is None:
                # Off the loop: the import and the world's certificates take a tenth of a second.
                self._client = await asyncio.to_thread(_client)
        import httpx

        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{entry.subject}.{entry.sequence}",
            "X-Holdfast-Event": entry.kind,
        }
        try:
            async with asyncio.timeout(WEBHOOK_S):
                # The answer's body is of no interest, and might never end.
                async with self._client.stream("POST", target.url, content=entry.body, headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            raise NotDelivered(f"no answer within {WEBHOOK_S:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            # Its words may hold the URL.
            raise NotDelivered(_KINDS.get(type(error).__name__, "the connection failed")) from None
        if not 200 <= status < 300:
            raise NotDelivered(f"it answered with HTTP status {status}")

    async def _call_service(self, target: Target, entry: OutboxEntry) -> None:
        """In a process of its own: of 170 services' code any may hang, and is then killed."""
        asked = json.dumps({"url": target.url, **in_words(entry.body)}).encode()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            apprise_sender.__name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SERVICE_S):
                await process.communicate(asked)
        except TimeoutError:
            raise NotDelivered(f"the service did not answer within {SERVICE_S:.0f} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
        if process.returncode != 0:
            raise NotDelivered(
                apprise_sender.REASONS.get(
                    process.returncode or 0, "the service refused the notification or could not be reached"
                )
            )


_KINDS = {
    "ConnectError": "it could not be reached",
    "ConnectTimeout": "it could not be reached",
    "RemoteProtocolError": "it does not speak HTTP, or hung up",
    "InvalidURL": "its URL is none",
    "UnsupportedProtocol": "its URL is none",
}


def _client() -> httpx.AsyncClient:
    """A client that follows no redirect, which could lead to hosts that are not allowed, and keeps no cookies.

    It trusts the system's authorities beside the world's: a private CA is usually among the former alone.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    trusted = httpx.create_ssl_context()
    trusted.load_default_certs()
    direct = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}
    return httpx.AsyncClient(
        verify=trusted,
        follow_redirects=False,
        timeout=WEBHOOK_S,
        headers={"User-Agent": f"holdfast/{__version__}"},
        limits=httpx.Limits(max_connections=32, max_keepalive_connections=8),
        mounts=direct,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )
