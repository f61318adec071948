"""Metrics over HTTP: plain for this machine, over mutual TLS for named readers, and nothing but metrics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast._base.identity import Identity, Kind
from holdfast._daemon.metrics import connection, listener
from holdfast._daemon.metrics.listener import listen
from holdfast._security import pki
from holdfast._security.tls import HOST_NAME, TlsFiles
from holdfast.errors import ConfigError, Denied

PAGE = b"holdfast_jobs 3\n"
WITHIN_S = 180.0


def page(accept: str) -> tuple[bytes, str]:
    return PAGE, f"text/plain; asked={accept}"


@asynccontextmanager
async def plain() -> AsyncIterator[int]:
    served = await listen("127.0.0.1:0", page, key="metrics_listen")
    try:
        yield served.port
    finally:
        served.close()


async def talk(port: int, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What comes back until the other end hangs up."""
    async with asyncio.timeout(WITHIN_S):
        name = HOST_NAME if context else None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


async def answered(port: int, request: bytes, context: ssl.SSLContext | None = None) -> bool:
    """Whether there is any answer, before the other end hangs up or cuts off."""
    try:
        return bool(await talk(port, request, context))
    except (ConnectionError, ssl.SSLError):
        return False


def get(path: str = "/metrics", *headers: str, method: str = "GET") -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1:9470", "Connection: close", *headers)
    return "\r\n".join((*lines, "", "")).encode()


async def test_page_is_served_in_the_form_that_was_asked_for() -> None:
    async with plain() as port:
        answer = await talk(port, get("/metrics", "Accept: application/openmetrics-text"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"asked=application/openmetrics-text" in head
    assert body == PAGE


async def test_one_connection_serves_many_scrapes() -> None:
    request = get().replace(b"Connection: close\r\n", b"")
    async with plain() as port:
        assert (await talk(port, request + request + get())).count(PAGE) == 3


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), b"404"),
        (get("/metrics/../secret"), b"404"),
        (get(method="POST"), b"405"),
        (get("/metrics", "Content-Length: 4") + b"GET ", b"200"),
        (b"nonsense\r\n\r\n", b"400"),
        (get().replace(b"Host: 127.0.0.1:9470\r\n", b""), b"400"),
        (get("/metrics", "Transfer-Encoding: chunked", method="POST") + b"2\r\nxx\r\n0\r\n\r\n" + get(), b"405"),
        (get().replace(b"127.0.0.1:9470", b"evil.example"), b"403"),
    ],
)
async def test_anything_else_is_refused(request_: bytes, status: bytes) -> None:
    async with plain() as port:
        answer = await talk(port, request_)
    assert answer.split(b" ")[1] == status and answer.count(b"HTTP/1.1") == 1


async def test_head_gets_no_body() -> None:
    async with plain() as port:
        answer = await talk(port, get(method="HEAD"))
    assert answer.endswith(b"\r\n\r\n") and f"Content-Length: {len(PAGE)}".encode() in answer


async def test_scraper_that_asks_and_does_not_read_costs_a_few_pages_of_memory() -> None:
    made = 0

    def large(accept: str) -> tuple[bytes, str]:
        nonlocal made
        made += 1
        return b"x" * (1 << 20), "text/plain"

    served = await listen("127.0.0.1:0", large, key="metrics_listen")
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1 << 10)
        request = get().replace(b"Connection: close\r\n", b"")
        writer.write(request * 200 + get())
        async with asyncio.timeout(WITHIN_S):
            while not made:  # noqa: ASYNC110  # what a server does has no event to wait for
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        assert made < 30
        async with asyncio.timeout(WITHIN_S):
            assert len(await reader.read()) > 201 << 20  # all of it comes to one who reads
        assert made == 201
        writer.close()
    finally:
        served.close()


async def test_head_without_an_end_is_cut_off() -> None:
    async with plain() as port:
        assert not await answered(port, b"GET /metrics HTTP/1.1\r\n" + b"x" * 2 * connection.MAX_HEAD)


async def test_only_so_many_connections_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 1)
    async with plain() as port:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        assert not await answered(port, get())
        first.close()


async def test_connection_that_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)
    async with plain() as port:
        assert not await answered(port, b"GET")


async def test_port_that_is_taken_is_named() -> None:
    async with plain() as port:
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}.*metrics_listen"):
            await listen(f"127.0.0.1:{port}", page, key="metrics_listen")


@pytest.mark.parametrize("address", ["9470", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999", ":9470"])
def test_address_that_is_none_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics_listen is .*HOST:PORT"):
        listener.parse(address, "metrics_listen")


async def test_without_tls_nobody_else_than_this_machine_may_read() -> None:
    with pytest.raises(ConfigError, match="only this machine"):
        await listen("0.0.0.0:0", page, key="metrics_listen")


# --- over TLS -----------------------------------------------------------------------------------------------------

Issue = Callable[[str], TlsFiles]


@pytest.fixture
def issue(tmp_path: Path) -> Issue:
    pki.create_ca("lab", tmp_path)

    def made(who: str) -> TlsFiles:
        kind, _, name = who.partition("/")
        return pki.issue(tmp_path, Identity("lab", Kind(kind), name), tmp_path, f"{kind}-{name}")

    return made


def only_prometheus(who: Identity) -> None:
    if (who.kind, who.name) != (Kind.USER, "prometheus"):
        raise Denied(f"{who} may not read.")


@asynccontextmanager
async def guarded(files: TlsFiles) -> AsyncIterator[int]:
    """All addresses of the machine count as others', so TLS is asked for; the test calls by loopback."""
    served = await listen("0.0.0.0:0", page, key="metrics_listen", files=files, admits=only_prometheus)
    try:
        yield served.port
    finally:
        served.close()


def context(files: TlsFiles, *, shows: bool = True) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(files.ca))
    if shows:
        made.load_cert_chain(files.cert, files.key)
    return made


async def test_named_reader_gets_the_page_from_a_host_of_the_cluster(issue: Issue) -> None:
    async with guarded(issue("host/h1")) as port:
        assert (await talk(port, get(), context(issue("user/prometheus")))).endswith(PAGE)


async def test_others_of_the_cluster_are_told_that_they_may_not(issue: Issue) -> None:
    async with guarded(issue("host/h1")) as port:
        for who in ("user/ann", "host/h2", "host/prometheus"):
            answer = await talk(port, get(), context(issue(who)))
            assert answer.split(b" ")[1] == b"403" and PAGE not in answer


async def test_who_shows_no_certificate_gets_no_further_than_the_handshake(issue: Issue) -> None:
    async with guarded(issue("host/h1")) as port:
        assert not await answered(port, get(), context(issue("user/prometheus"), shows=False))
        assert not await answered(port, get())


async def test_certificate_that_was_renewed_is_shown_from_the_next_handshake_on(issue: Issue) -> None:
    files, reader = issue("host/h1"), context(issue("user/prometheus"))

    async def serial(port: int) -> bytes:
        async with asyncio.timeout(WITHIN_S):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=reader, server_hostname=HOST_NAME)
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
        assert isinstance(shown, bytes)
        return shown

    async with guarded(files) as port:
        before = await serial(port)
        issue("host/h1")
        after = await serial(port)
        assert before != after
        files.cert.unlink()
        assert await serial(port) == after


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(map(listener.is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(listener.is_loopback, ("0.0.0.0", "::", "10.0.0.1", "ctl.lab")))
