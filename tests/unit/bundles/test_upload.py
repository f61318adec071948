"""An upload that gRPC cuts short is tried again a few times, and one too many until there is a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import grpc
import pytest

from holdfast._base import rpc_status
from holdfast._sdk import bundle_calls
from holdfast.bundles.packing import Bundle
from holdfast.errors import HoldfastError, TooMany
from holdfast.v1 import bundle_pb2


def too_many() -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    status = rpc_status.to_status(TooMany("ann has 8 uploads in progress.", fix="Wait."))
    trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return grpc.aio.AioRpcError(status.code, nothing, trailing, details=status.details)


def internal() -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, nothing, nothing, details="Internal error from Core")


async def uploaded(tmp_path: Path, failures: int, failed: Callable[[], grpc.aio.AioRpcError] = internal) -> int:
    """Tries that an upload took whose first ``failures`` are cut short."""
    tries = 0

    async def get(request: object, timeout: float) -> bundle_pb2.GetBundleResponse:
        return bundle_pb2.GetBundleResponse()

    async def upload(messages: object) -> None:
        nonlocal tries
        tries += 1
        if tries <= failures:
            raise failed()

    file = tmp_path / "bundle"
    file.write_bytes(b"x")
    stub: Any = SimpleNamespace(GetBundle=get, UploadBundle=upload)
    await bundle_calls.upload(cast(Any, stub), Bundle(file, "ab" * 32, 1, 1, 1), "")
    return tries


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("holdfast._sdk.bundle_calls.anyio.sleep", sleep)


@pytest.mark.anyio
async def test_a_cut_short_upload_is_tried_again(tmp_path: Path) -> None:
    assert await uploaded(tmp_path, failures=2) == 3


@pytest.mark.anyio
async def test_an_upload_that_is_always_cut_short_fails(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="Internal error from Core"):
        await uploaded(tmp_path, failures=99)


@pytest.mark.anyio
async def test_an_upload_beside_too_many_others_waits_for_them(tmp_path: Path) -> None:
    assert await uploaded(tmp_path, failures=20, failed=too_many) == 21
