"""The web page on this machine alone: HTTP on a loopback address, each request made with the user's own certificate.

A process that reaches the port gets nothing without the cookie, which a code in the printed address is exchanged for,
once. A page of another site is refused as the controller's own listener refuses it. Browsers send a cookie to all ports
of a host: so that no other user who serves something there can make use of it, the kernel is asked who connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import secrets
from collections.abc import AsyncGenerator
from http import HTTPStatus
from urllib.parse import unquote

from holdfast._base.cancellation import connection_handler
from holdfast._base.printable import json_text
from holdfast._sdk.loopback_peer import account_of
from holdfast._sdk.web_calls import WebCalls
from holdfast.errors import HoldfastError

HEAD_BYTES = 32 << 10
BODY_BYTES = 1 << 20
HEAD_S = 30.0
CONNECTIONS = 64
_PASSED = ("accept", "accept-encoding", "content-type", "last-event-id")
_LEFT_OUT = ("connection", "transfer-encoding", "content-length")


class Refused(Exception):
    """A request that the bridge answers itself."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class WebBridge:
    """Serves the page of one user to the browser that has the code."""

    def __init__(self, calls: WebCalls) -> None:
        self._calls = calls
        self._code = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._open = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[str]:
        """Serve while the block runs, which gets the address that opens the page. Raises ``OSError``."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, limit=HEAD_BYTES)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            yield f"http://127.0.0.1:{self.port}/login#{self._code}"

    @connection_handler
    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS:
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                await _check_account(writer)
                method, target, headers = _head(head)
                await self._answer(method, target, headers, reader, writer)
        except Refused as refused:
            await _say(writer, refused.status, str(refused))
        except HoldfastError as error:
            await _say(writer, 503, str(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._open -= 1
            writer.close()

    async def _answer(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        path = unquote(target.partition("?")[0])  # as the controller reads it: /%761/ is /v1/ there
        self._check(path, headers)
        async with asyncio.timeout(HEAD_S):
            body = await reader.readexactly(_length(headers))
        if (method, path) == ("POST", "/web/login"):
            await self._sign_in(writer, body)
            return
        if path.startswith("/web/"):
            raise Refused(404, "There is nothing at this address: the page ends with the command that serves it.")
        if path.startswith("/v1/") and not self._knows(headers.get("cookie", "")):
            raise Refused(401, "You are not signed in. Open the address that `holdfast web --local` printed.")
        passed = {name: headers[name] for name in _PASSED if name in headers}
        async with (
            _while_there(reader),
            contextlib.aclosing(self._calls.relay(method, target, passed, body)) as parts,
        ):
            async for part in parts:
                if part.status:
                    kept = {name: value for name, value in part.headers.items() if name not in _LEFT_OUT}
                    writer.write(_answer_head(part.status, kept))
                writer.write(part.data)
                async with asyncio.timeout(2 * HEAD_S):
                    await writer.drain()

    def _check(self, path: str, headers: dict[str, str]) -> None:
        """Refuse other names for this machine, and requests of other sites' pages. Raises ``Refused``."""
        host = headers.get("host", "")
        if host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            raise Refused(421, "Use the address that `holdfast web --local` printed.")
        site = headers.get("sec-fetch-site", "same-origin")
        if path.startswith(("/v1/", "/web/")):
            own = headers.get("origin", f"http://{host}") == f"http://{host}"
            if site != "same-origin" or not own or "x-holdfast" not in headers:
                raise Refused(403, "Only the page itself may ask this.")
        elif site not in ("same-origin", "none"):
            followed = headers.get("sec-fetch-mode") == "navigate"
            if not followed or headers.get("sec-fetch-dest", "document") != "document":
                raise Refused(403, "Pages of other sites may link to this page, and nothing else.")

    async def _sign_in(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        code = ""
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            code = str(json.loads(body)["code"])
        if not self._code or not hmac.compare_digest(code.encode(errors="replace"), self._code.encode()):
            raise Refused(401, "This code was used, or is another one. Run `holdfast web --local` again.")
        self._code = ""
        cookie = f"holdfast-{self.port}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
        text = json_text({"user": "", "end": None}).encode()
        writer.write(_answer_head(200, {"content-type": "application/json", "set-cookie": cookie}) + text)
        await writer.drain()

    def _knows(self, cookies: str) -> bool:
        pairs = [part.strip().partition("=") for part in cookies.split(";")]
        values = [value for name, _, value in pairs if name == f"holdfast-{self.port}"]
        return len(values) == 1 and hmac.compare_digest(values[0].encode(), self._cookie.encode())


@contextlib.asynccontextmanager
async def _while_there(reader: asyncio.StreamReader) -> AsyncGenerator[None]:
    """The block, until the browser closes the connection: ``TimeoutError`` then. A shell ends with its answer."""
    async with asyncio.timeout(None) as until_gone:

        async def watch() -> None:
            with contextlib.suppress(OSError):
                await reader.read(1)
            until_gone.reschedule(asyncio.get_running_loop().time())

        watching = asyncio.get_running_loop().create_task(watch())
        try:
            yield
        finally:
            watching.cancel()


async def _check_account(writer: asyncio.StreamWriter) -> None:
    """Refuse other accounts of this machine but root, who may carry a browser's connections. Raises ``Refused``."""
    ends = [writer.get_extra_info(name)[:2] for name in ("peername", "sockname")]
    account = await asyncio.to_thread(account_of, *ends)
    if account not in (None, 0, os.geteuid()):
        raise Refused(403, "This page is another user's of this machine.")


def _head(head: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    pairs = [line.partition(":") for line in lines if line]
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if not version.startswith("HTTP/1.") or not target.startswith("/") or len(headers) != len(pairs):
        raise Refused(400, "This is no request that can be read.")
    if "transfer-encoding" in headers:
        raise Refused(411, "The length of a body must be given.")
    return method, target, headers


def _length(headers: dict[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > 8 or int(text) > BODY_BYTES:
        raise Refused(413, f"The body must have {BODY_BYTES:,} bytes at most.")
    return int(text)


def _answer_head(status: int, headers: dict[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1", "replace")


async def _say(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    error = {"error": {"code": status, "message": message, "status": HTTPStatus(status).name, "details": []}}
    headers = {"content-type": "application/json", "cache-control": "no-store", "x-content-type-options": "nosniff"}
    with contextlib.suppress(OSError):
        writer.write(_answer_head(status, headers) + json_text(error).encode())
        await writer.drain()
