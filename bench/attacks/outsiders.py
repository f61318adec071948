"""Attacks by who has no certificate: connections, handshakes and guesses of codes and tokens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import tomllib
from typing import cast

import grpc.aio
from bench.attacks import Site, attack

from holdfast import settings
from holdfast._security import tls
from holdfast._security.enrolment import tokens
from holdfast.client import Client
from holdfast.v1 import enrolment_pb2, enrolment_pb2_grpc

CONNECTIONS = 2_000
ELSEWHERE = ("127.0.0.2", 0)
"""The attackers' address: the second user has another."""
AT_ONCE = 32
"""Handshakes that one core of the attacker's has under way."""


@attack("2,000 connections without a certificate, opened again as they are closed", role="viewer")
async def connections(site: Site) -> None:
    host, _, port = site.controller.rpartition(":")

    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=ELSEWHERE)
                await reader.read()
                writer.close()
            await asyncio.sleep(0.2)

    await asyncio.gather(*(hold() for _ in range(CONNECTIONS)))


@attack("handshakes over gRPC without a certificate, as many as a core can begin", role="viewer")
async def handshakes(site: Site) -> None:
    context = _trusting_anyone()
    host, _, port = site.controller.rpartition(":")

    async def begin() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port), ssl=context, local_addr=ELSEWHERE)
                writer.transport.abort()

    await asyncio.gather(*(begin() for _ in range(AT_ONCE)))


@attack("connections with a certificate, on which no call is made, as many as a core can begin", role="viewer")
async def idle_connections(site: Site) -> None:
    files = site.files()
    context = _trusting_anyone()
    context.load_cert_chain(files.cert, files.key)
    host, _, port = site.controller.rpartition(":")
    held: list[object] = []

    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                held.append(await asyncio.open_connection(host, int(port), ssl=context, local_addr=ELSEWHERE))
            await asyncio.sleep(0)

    await asyncio.gather(*(hold() for _ in range(AT_ONCE)))


@attack("guessed codes for the web page", role="viewer")
async def guessed_codes(site: Site) -> None:
    port = tomllib.loads((site.directory / "dev.toml").read_text())["web_port"]
    trusted = ssl.create_default_context(cafile=str(site.files().ca))
    trusted.check_hostname = False
    body = json.dumps({"code": "x" * 43})
    lines = ("POST /web/login HTTP/1.1", f"Host: localhost:{port}", "Content-Type: application/json")
    request = "\r\n".join((*lines, f"Content-Length: {len(body)}", "Connection: close", "", body)).encode()

    async def guess() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, local_addr=ELSEWHERE)
                writer.write(request)
                await reader.read()
                writer.close()

    await asyncio.gather(*(guess() for _ in range(16)))


@attack("guessed join tokens", role="viewer")
async def guessed_tokens(site: Site) -> None:
    credentials = grpc.ssl_channel_credentials(site.files().ca.read_bytes())
    options = [("grpc.ssl_target_name_override", tls.SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    async with Client(settings.load(site.directory / "client.toml")) as admin:
        # Its address is no secret, and a port of its own choice here.
        enrolment = (await admin.access.create_token(host="h1")).enrolment

    async def guess() -> None:
        channel = grpc.aio.secure_channel(enrolment, credentials, options)
        stub = cast(
            "enrolment_pb2_grpc.EnrolmentServiceAsyncStub", enrolment_pb2_grpc.EnrolmentServiceStub(channel)
        )
        while True:
            await site.refused(stub.Enrol(enrolment_pb2.EnrolRequest(token=tokens.draw(), host="h1")))

    await asyncio.gather(*(guess() for _ in range(16)))


def _trusting_anyone() -> ssl.SSLContext:
    """For gRPC's port; an attacker saves its own time, and verifies nothing."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context
