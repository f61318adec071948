"""Sends one notification: a POST of ours, or a service's own form by way of apprise."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from holdfast._base.version import __version__
from holdfast._daemon import log
from holdfast_controller.core.outbox import OutboxEntry
from holdfast_controller.shell.notify import apprise_sender
from holdfast_controller.shell.notify.allowed_hosts import SETTING, AllowedHosts
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
CONNECT_S = 4.0
"""For one address of a name that has two: behind one that swallows packets there is time for the other."""
RESOLVERS = 4


class NotDelivered(Exception):
    """Why not, in words without any secret."""


class Sender:
    """Delivers notifications over HTTP. Close it after use."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._pinned_client: httpx.AsyncClient | None = None
        """For URLs in jobs: to addresses that were checked."""
        self._opening = asyncio.Lock()
        self._resolving = ThreadPoolExecutor(RESOLVERS, "resolve")
        """Threads of their own: a slow name server must hold up nothing else."""

    async def send(self, target: Target, entry: OutboxEntry) -> None:
        """Returns once the receiver has taken it. Raises ``NotDelivered``."""
        try:
            await (self._call_service(target, entry) if target.service else self._post(target, entry))
        except OSError as error:  # it has no process or descriptor left
            raise NotDelivered(f"the controller's machine can't send it: {error.strerror or error}") from error

    async def close(self) -> None:
        """Closes idle connections."""
        self._resolving.shutdown(wait=False, cancel_futures=True)
        for client in (self._client, self._pinned_client):
            if client is not None:
                await client.aclose()

    async def _post(self, target: Target, entry: OutboxEntry) -> None:
        async with self._opening:
            if self._client is None:
                # Off the loop: the import and the world's certificates take a tenth of a second.
                self._client, self._pinned_client = await asyncio.to_thread(_clients)
        import httpx

        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{entry.subject}.{entry.sequence}",
            "X-Holdfast-Event": entry.kind,
        }
        try:
            async with asyncio.timeout(WEBHOOK_S):
                status = await self._status(target, entry.body, headers)
        except TimeoutError:
            raise NotDelivered(f"no answer within {WEBHOOK_S:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            # Its words may hold the URL.
            raise NotDelivered(_KINDS.get(type(error).__name__, "the connection failed")) from None
        if not 200 <= status < 300:
            raise NotDelivered(f"it answered with HTTP status {status}")

    async def _status(self, target: Target, body: str, headers: dict[str, str]) -> int:
        """Status of the answer. Its body is of no interest, and might never end."""
        import httpx

        assert self._client is not None
        assert self._pinned_client is not None
        url = httpx.URL(target.url)
        if target.allowed is None or _proxy(url.scheme, url.host):
            async with self._client.stream("POST", url, content=body, headers=headers) as answer:
                return answer.status_code
        # The name is resolved once: a second answer of its name server could be another, unchecked one.
        named = {} if _is_address(url.host) else {"sni_hostname": url.host}
        headers = {"Host": url.netloc.decode("ascii"), **headers}
        for last, address in await self._addresses(url.host, target.allowed):
            pinned = url.copy_with(host=address)
            try:
                async with self._pinned_client.stream(
                    "POST", pinned, content=body, headers=headers, extensions=named
                ) as answer:
                    return answer.status_code
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if last:
                    raise
        raise AssertionError("there is a last address")

    async def _addresses(self, host: str, allowed: AllowedHosts) -> list[tuple[bool, str]]:
        """(whether it is the last, address) of a host, at most two; all are allowed. Raises ``NotDelivered``."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._resolving, resolve, host)
        except OSError:
            raise NotDelivered("its name could not be resolved") from None
        wrong = next((address for address in found if not allowed.may_call(address)), None)
        if wrong is not None:
            log.warning("notification.address_refused", host=host, address=wrong, setting=SETTING)
            problem = "its name resolves to an address that is not public"
            raise NotDelivered(f"{problem}; an admin can allow it: {SETTING} in controller.toml")
        tried = found[:2]
        return [(address == tried[-1], address) for address in tried]

    async def _call_service(self, target: Target, entry: OutboxEntry) -> None:
        """In a process of its own: of 170 services' code any may hang, and is then killed."""
        asked = json.dumps({"url": target.url, **in_words(entry.body)}).encode()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
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
        except RuntimeError:  # uvloop's, for a pipe whose reader is gone
            raise NotDelivered("the process that sends it ended before it knew what to send") from None
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


def resolve(host: str) -> list[str]:
    """The addresses of a host, each once. Raises ``OSError``."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no name") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _proxy(scheme: str, host: str) -> bool:
    """Whether the controller's service has a proxy for this URL: then the proxy resolves the name, by its own rules."""
    import urllib.request  # httpx has loaded it by now

    proxies = urllib.request.getproxies()
    return bool(proxies.get(scheme) or proxies.get("all")) and not urllib.request.proxy_bypass(host)


def _clients() -> tuple[httpx.AsyncClient, httpx.AsyncClient]:
    """Clients for URLs of admins and of jobs. They follow no redirect and keep no cookies.

    A redirect could lead to hosts that are not allowed. They trust the system's authorities beside the world's: a
    private CA is usually among the former alone. That for jobs reuses no connection: two names at one address would
    share it, although only the first was verified.
    """
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    trusted = httpx.create_ssl_context()
    trusted.load_default_certs()
    direct = {"all://localhost": None, "all://127.0.0.1": None, "all://[::1]": None}

    def client(*, keep: int, pinned: bool) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=trusted,
            follow_redirects=False,
            timeout=httpx.Timeout(WEBHOOK_S, connect=CONNECT_S if pinned else WEBHOOK_S),
            headers={"User-Agent": f"holdfast/{__version__}"},
            limits=httpx.Limits(max_connections=32, max_keepalive_connections=keep),
            mounts=None if pinned else direct,
            trust_env=not pinned,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    return client(keep=8, pinned=False), client(keep=0, pinned=True)
