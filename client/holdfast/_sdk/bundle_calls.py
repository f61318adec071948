"""A bundle's way to the controller: not sent if it is there, and else from where the last try has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import grpc

from holdfast._base.cancellation import not_cancelled_by_grpc
from holdfast._base.rpc_status import from_rpc_error, is_ours
from holdfast._sdk.reconnect import CLOSED, LinkCallback, Outage, is_away
from holdfast.bundles.packing import Bundle
from holdfast.errors import BundleRefused, HoldfastError, TooMany, WrongState
from holdfast.v1 import bundle_pb2

if TYPE_CHECKING:
    from holdfast.v1 import bundle_pb2_grpc

CHUNK_BYTES = 1 << 20
"""As much as a message may hold: of one at a time so much is under way."""
ASK_TIMEOUT_S = 15.0
GIVE_UP_AFTER_S = 300.0
"""Without a byte that got through."""
UNEXPLAINED_MOST = 3
"""Tries of one upload that may end with gRPC's own INTERNAL in place of the controller's answer."""

Progress = Callable[[int, int], None]
"""Bytes sent so far, those of earlier tries included, and bytes in all."""


async def upload(
    stub: bundle_pb2_grpc.BundleServiceAsyncStub,
    bundle: Bundle,
    endpoint: str,
    on_progress: Progress | None = None,
    on_link: LinkCallback | None = None,
) -> bool:
    """Have the controller hold the bundle durably. Whether anything had to be sent.

    Resumes at its offset after the link broke. Raises ``StorageFull``, ``BundleRefused``, ``Unavailable``, and
    ``TooMany`` where other uploads of the same user take all places for long.
    """
    outage, sent, refused, unexplained = Outage(on_link), False, 0, 0
    furthest, since = -1, anyio.current_time()
    while True:
        try:
            async with not_cancelled_by_grpc():
                ask = bundle_pb2.GetBundleRequest(digest=bundle.digest)
                there = await stub.GetBundle(ask, timeout=ASK_TIMEOUT_S)
                outage.answered()
                if there.complete:
                    return sent
                offset = there.offset if there.offset <= bundle.size else 0
                if offset > furthest:
                    furthest, since = offset, anyio.current_time()
                sent = True
                await stub.UploadBundle(_messages(bundle, offset, on_progress))
                return sent
        except asyncio.InvalidStateError as closed:
            raise WrongState(CLOSED) from closed
        except grpc.aio.AioRpcError as rpc_error:
            error: HoldfastError = from_rpc_error(rpc_error, endpoint=endpoint)
            error.__cause__ = rpc_error
            refused += isinstance(error, BundleRefused)
            # A refusal in mid-stream may arrive as gRPC's own INTERNAL, for the write that it broke: ask for it again.
            cut_short = rpc_error.code() is grpc.StatusCode.INTERNAL and not is_ours(rpc_error)
            unexplained += cut_short
            # One who has too many uploads in progress waits for them.
            again = (
                is_away(error) or isinstance(error, TooMany) or (isinstance(error, BundleRefused) and refused == 1)
            )
            again = again or (cut_short and unexplained <= UNEXPLAINED_MOST)
            if not again or anyio.current_time() - since > GIVE_UP_AFTER_S:
                raise error from rpc_error
            await anyio.sleep(outage.failed(error))


async def _messages(
    bundle: Bundle, offset: int, on_progress: Progress | None
) -> AsyncIterator[bundle_pb2.UploadBundleRequest]:
    opened = bundle_pb2.UploadOpen(digest=bundle.digest, size=bundle.size, offset=offset)
    yield bundle_pb2.UploadBundleRequest(open=opened)
    with bundle.file.open("rb") as file:
        file.seek(offset)
        while chunk := await anyio.to_thread.run_sync(file.read, CHUNK_BYTES):
            yield bundle_pb2.UploadBundleRequest(chunk=chunk)
            offset += len(chunk)
            if on_progress is not None:
                on_progress(offset, bundle.size)
