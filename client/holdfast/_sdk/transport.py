"""How the SDK makes a call: retries, deadlines, errors that are ours, and streams that outlive their link."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from typing import Any, TypeVar

import anyio
import grpc
from google.protobuf.descriptor_pb2 import MethodOptions

from holdfast._base.addresses import SEVERAL, keepalive
from holdfast._base.cancellation import not_cancelled_by_grpc
from holdfast._base.rpc_status import from_rpc_error
from holdfast._sdk.reconnect import CLOSED, Outage, is_away, may_have_arrived, nobody_there
from holdfast._security import tls
from holdfast.errors import HoldfastError, Unavailable, WrongState
from holdfast.settings import ClientSettings
from holdfast.v1 import (
    access_pb2,
    bundle_pb2,
    cluster_pb2,
    hang_pb2,
    host_pb2,
    job_pb2,
    schedule_pb2,
    secret_pb2,
    web_pb2,
)

Q = TypeVar("Q")
T = TypeVar("T")

CALL_TIMEOUT_S = 15.0
"""For a unary call, its retries included."""
TAKEOVER_S, AGAIN_S = 6.0, 0.1
"""Of several controllers, so long none may be there before a call says so: another one takes over within that."""
CERTAIN_S = 75.0
"""So long an answer is asked for that may have been lost."""

_SERVICES = (access_pb2, bundle_pb2, cluster_pb2, hang_pb2, host_pb2, job_pb2, schedule_pb2, secret_pb2, web_pb2)


def _retried() -> Iterator[dict[str, str]]:
    """The unary calls that the contract marks as safe to repeat; a stream is opened again by its own reader."""
    unknown = MethodOptions.IDEMPOTENCY_UNKNOWN
    for file in _SERVICES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                streams = method.client_streaming or method.server_streaming
                if not streams and method.GetOptions().idempotency_level != unknown:
                    yield {"service": service.full_name, "method": method.name}


_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [*_retried()],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "0.8s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
OPTIONS = (
    ("grpc.ssl_target_name_override", tls.SERVER_NAME),
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.enable_retries", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    # A channel of our own per client: nothing is shared with another one's certificate.
    ("grpc.use_local_subchannel_pool", 1),
)
# A watcher that hears nothing for hours must notice a dead link, and a host that swallows packets is noticed soon.
ALONE = (*keepalive(30_000, 10_000), ("grpc.min_reconnect_backoff_ms", 2_000))


def options(controller: str) -> tuple[tuple[str, str | int], ...]:
    """Options of a channel: of several addresses another one leads within seconds, so it is dialled sooner."""
    if "," in controller:
        return (*OPTIONS, *SEVERAL, *_backoff(100, 500))
    return (*OPTIONS, *ALONE, *_backoff(200, 3_000))


def _backoff(first_ms: int, longest_ms: int) -> tuple[tuple[str, int], ...]:
    """Options of a channel whose address refuses: the waits between two attempts."""
    return (("grpc.initial_reconnect_backoff_ms", first_ms), ("grpc.max_reconnect_backoff_ms", longest_ms))


PAGE_SIZE = 1_000


class Calling:
    """Makes the calls of every group; ``Client`` opens the channel."""

    settings: ClientSettings

    async def _unary(self, method: grpc.aio.UnaryUnaryMultiCallable[Q, T], request: Q) -> T:
        """The answer to one call. Raises ``HoldfastError``."""
        until = time.monotonic() + (TAKEOVER_S if "," in self.settings.controller else 0.0)
        while True:
            try:
                async with not_cancelled_by_grpc():
                    return await method(request, timeout=CALL_TIMEOUT_S)
            except asyncio.InvalidStateError as error:
                raise WrongState(CLOSED) from error
            except grpc.aio.AioRpcError as error:
                if not nobody_there(error) or time.monotonic() > until:
                    raise self._said(error, CALL_TIMEOUT_S) from error
            await anyio.sleep(AGAIN_S)

    async def _once(self, method: grpc.aio.UnaryUnaryMultiCallable[Q, T], request: Q) -> T:
        """The answer to a call whose request has an id, which is sent again where its answer may have been lost.

        Raises ``HoldfastError``; after ``CERTAIN_S`` one that says what is not known.
        """
        outage, lost = Outage(), False
        until = time.monotonic() + CERTAIN_S
        while True:
            try:
                return await self._unary(method, request)
            except HoldfastError as error:
                lost = lost or may_have_arrived(error)
                if not (lost and is_away(error)):
                    raise
                wait_s = outage.failed(error)
                if time.monotonic() + wait_s > until:
                    raise Unavailable(
                        f"{error.message} What was asked for may have been done.",
                        fix="See holdfast job list before you submit it again.",
                    ) from error
            await anyio.sleep(wait_s)

    async def _pages(self, method: grpc.aio.UnaryUnaryMultiCallable[Any, T], request: Any) -> AsyncGenerator[T]:
        """Every page of a list; a controller of release 0.1 sends one page with everything."""
        request.page_size = PAGE_SIZE
        while True:
            page = await self._unary(method, request)
            yield page
            request.page_token = getattr(page, "next_page_token", "")
            if not request.page_token:
                return

    async def _stream(self, call: grpc.aio.UnaryStreamCall[Q, T]) -> AsyncGenerator[T]:
        """The messages of one call, which is cancelled when the reader leaves."""
        try:
            async with not_cancelled_by_grpc():
                async for message in call:
                    yield message
        except asyncio.InvalidStateError as error:
            raise WrongState(CLOSED) from error
        except grpc.aio.AioRpcError as error:
            raise self._said(error) from error
        finally:
            call.cancel()

    def _said(self, error: grpc.aio.AioRpcError, within_s: float = 0.0) -> HoldfastError:
        start = _start_command(self.settings)
        return from_rpc_error(error, endpoint=self.settings.controller, within_s=within_s, start=start)

    async def _wait(self, outage: Outage, error: HoldfastError) -> None:
        """Sit out one failure of a stream; raises ``error`` when waiting is of no use."""
        if not is_away(error):
            raise error
        await anyio.sleep(outage.failed(error))


def _start_command(settings: ClientSettings) -> str:
    """The command that starts the controller again where it is a dev cluster's; else empty."""
    folder = settings.ca.parent.parent
    return f"holdfast dev start --dir {shlex.quote(str(folder))}" if (folder / "dev.toml").is_file() else ""


def fresh_id() -> str:
    """Return a new request id for one call: however often it is sent, it is acted on once."""
    return uuid.uuid4().hex


def ended_early() -> HoldfastError:
    return HoldfastError("The controller ended the stream before the job had ended.")
