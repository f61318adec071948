"""Calls on the port for enrolment, which takes them from callers without a certificate."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.integration.controller.cluster import WITHIN_S
from tests.integration.controller.daemon.enrolment.test_enrolment import Site, config, site
from tests.security.floods.test_silent_connections import flood, more_than

from holdfast._security.enrolment import tokens
from holdfast.errors import Unavailable
from holdfast.v1 import enrolment_pb2
from holdfast_controller.shell.enrolment import service

__all__ = ["config", "site"]
pytestmark = pytest.mark.anyio


async def test_calls_whose_message_never_comes_keep_no_other_caller_out(site: Site) -> None:
    lasting = asyncio.Event()

    async def silent() -> AsyncIterator[enrolment_pb2.EnrolRequest]:
        await lasting.wait()
        yield enrolment_pb2.EnrolRequest()

    held: list[Any] = []
    for _ in range(2 * service.MAX_CALLS // service.CALLS_OF_ONE):
        await site.stranger()
        link = site.controller.channels[-1]
        call = link.stream_unary(
            "/holdfast.v1.EnrolmentService/Enrol",
            request_serializer=enrolment_pb2.EnrolRequest.SerializeToString,
            response_deserializer=enrolment_pb2.EnrolResponse.FromString,
        )
        held += [call(silent()) for _ in range(service.CALLS_OF_ONE)]
    await asyncio.sleep(1)
    assert not any(each.done() for each in held)
    line = await site.line()
    assert (await site.joins(line)).settings.exists()
    for each in held:
        each.cancel()
    lasting.set()


async def test_calls_beyond_those_in_progress_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CALLS", 0)
    stub = await site.stranger()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Enrol(enrolment_pb2.EnrolRequest(token=tokens.draw(), host="h1"), timeout=WITHIN_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "in progress" in str(refused.value.details())


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few calls of one address, which each says itself."""
    monkeypatch.setattr(service, "CALLS_BURST", 20)
    monkeypatch.setattr(service, "CALLS_PER_S", 0.1)
    monkeypatch.setattr(service, "WAIT_MOST_S", 3.0)
    monkeypatch.setattr(service, "peer_of", lambda context: dict(context.invocation_metadata())["from"])


async def test_an_address_that_calls_without_end_waits_whatever_it_asks_and_others_do_not(
    strict: None, site: Site
) -> None:
    stub = await site.stranger()

    def asks(address: str) -> Any:
        return stub.GetAuthority(
            enrolment_pb2.GetAuthorityRequest(), timeout=WITHIN_S, metadata=(("from", address),)
        )

    for _ in range(20):
        await asks("10.0.0.1")
    began = time.monotonic()
    late = [
        asks("10.0.0.1"),
        stub.GetProvider(enrolment_pb2.GetProviderRequest(), metadata=(("from", "10.0.0.1"),)),
    ]
    guess = stub.Enrol(enrolment_pb2.EnrolRequest(token=tokens.draw()), metadata=(("from", "10.0.0.1"),))
    await asks("10.0.0.2")
    assert not any(each.done() for each in (*late, guess))
    for each in (*late[1:], guess):
        with pytest.raises(grpc.aio.AioRpcError):
            await each
    assert (await late[0]).ca
    assert time.monotonic() - began >= 2.9


async def test_connections_that_are_held_open_keep_no_other_address_out(site: Site) -> None:
    """From one address, more than the port takes, each opened again as soon as it is closed."""
    line = await site.line()
    port = int(line.address.rpartition(":")[2])
    async with flood(port, service.MAX_CONNECTIONS + 64) as opened:
        await more_than(opened, service.MAX_CONNECTIONS)
        deadline = time.monotonic() + 30.0
        while (
            time.monotonic() < deadline
        ):  # on a busy machine they come faster than they are looked at, for a moment
            with contextlib.suppress(Unavailable):
                assert (await site.joins(line)).settings.exists()
                return
        pytest.fail("no try got in")
