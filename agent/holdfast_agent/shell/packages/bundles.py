"""Bundles on this host: fetched from the controller on a connection of its own, kept under the hash of their bytes.

A bundle has its name only once all of it is there and its hash is right. Before that it is a part, which is gone on
with after whatever interrupted it: a broken link, a controller or an agent that was restarted.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import random
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import grpc
import grpc.aio

from holdfast._base.addresses import Addresses
from holdfast._base.backoff import Backoff
from holdfast._base.durable import sync
from holdfast._daemon import log
from holdfast._security.tls import TlsFiles, channel_credentials
from holdfast.errors import ConfigError
from holdfast.v1 import bundle_pb2, bundle_pb2_grpc
from holdfast_agent.shell.packages.settings import CodeProblem
from holdfast_agent.shell.session.link import RETRY_FIRST_S, RETRY_MAX_S, channel_options

_FINAL = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)
_FROM_START = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
WRONG_BYTES_MAX = 3
"""A part that was damaged by a loss of power is fetched again; one that comes wrong again and again is not."""


class BundleCache:
    """Fetched bundles in ``directory``, of at most ``most_bytes`` together, beside those that are being used."""

    def __init__(
        self, addresses: Addresses, tls: TlsFiles, directory: Path, most_bytes: int, timeout_s: float
    ) -> None:
        self._addresses, self._tls, self._directory = addresses, tls, directory
        self._most_bytes, self._timeout_s = most_bytes, timeout_s
        self._locks: dict[str, anyio.Lock] = collections.defaultdict(anyio.Lock)
        self._held: collections.Counter[str] = collections.Counter()

    @contextlib.asynccontextmanager
    async def held(self, digest: str, on_fetch: Callable[[], None]) -> AsyncGenerator[Path]:
        """The bundle's file, as ``get`` has it; it stays until the end of the block, whatever else is fetched."""
        self._held[digest] += 1
        try:
            yield await self.get(digest, on_fetch)
        finally:
            self._held[digest] -= 1

    async def get(self, digest: str, on_fetch: Callable[[], None]) -> Path:
        """The bundle's file, fetched where it isn't here. ``on_fetch`` is called before that.

        Raises ``CodeProblem`` and ``OSError``.
        """
        async with self._locks[digest]:
            path = self._directory / digest
            if not path.exists():
                on_fetch()
                started = time.monotonic()
                with anyio.move_on_after(self._timeout_s) as scope:
                    await self._fetch(digest, path)
                if scope.cancelled_caught:
                    problem = f"the packaged code could not be fetched within {self._timeout_s:g} s"
                    raise CodeProblem(problem, host_fault=True)
                took_s = round(time.monotonic() - started, 3)
                log.info("bundle.fetched", digest=digest, bytes=path.stat().st_size, duration_s=took_s)
                self._make_room(path)
            os.utime(path)
            return path

    async def _fetch(self, digest: str, path: Path) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        backoff, wrong = Backoff(RETRY_FIRST_S, RETRY_MAX_S, random.Random()), 0
        while True:
            try:
                await self._stream(digest, part)
            except grpc.aio.AioRpcError as error:
                if error.code() in _FINAL:
                    raise CodeProblem(f"the packaged code can't be fetched: {error.details()}") from error
                if error.code() in _FROM_START:
                    part.unlink(missing_ok=True)
                log.info("bundle.fetch_interrupted", digest=digest, error=f"{error.code().name}: {error.details()}")
            except ConfigError as error:
                log.warning("tls.unreadable", error=str(error))
            except OSError:
                part.unlink(missing_ok=True)
                raise
            else:
                if await anyio.to_thread.run_sync(_sha256, part) == digest:
                    await anyio.to_thread.run_sync(_publish, part, path)
                    return
                log.warning("bundle.corrupt", digest=digest)
                part.unlink(missing_ok=True)
                wrong += 1
                if wrong == WRONG_BYTES_MAX:
                    raise CodeProblem("the packaged code does not come as it was sent", host_fault=True)
            await anyio.sleep(backoff.failed())

    async def _stream(self, digest: str, part: Path) -> None:
        """Add to the part what it lacks. Raises ``AioRpcError`` where the stream breaks, ``OSError``."""
        credentials = channel_credentials(self._tls)
        options = channel_options("bundles", self._addresses)
        async with grpc.aio.secure_channel(self._addresses.current, credentials, options=options) as channel:
            stub = cast("bundle_pb2_grpc.BundleServiceAsyncStub", bundle_pb2_grpc.BundleServiceStub(channel))
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            call = None
            try:
                offset = os.fstat(handle).st_size
                call = stub.FetchBundle(bundle_pb2.FetchBundleRequest(digest=digest, offset=offset))
                async for message in call:
                    rest = memoryview(message.chunk)
                    while rest:
                        rest = rest[await anyio.to_thread.run_sync(os.write, handle, rest) :]
            finally:
                if call is not None:
                    call.cancel()
                os.close(handle)

    def _make_room(self, fresh: Path) -> None:
        """The longest unused bundles go until those that stay are within the bound."""
        entries = []
        for path in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another part has become a bundle
                entries.append((path.stat(), path))
        total = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime):
            if total <= self._most_bytes:
                return
            lock = self._locks.get(path.stem)
            if path != fresh and not (lock and lock.locked()) and not self._held[path.stem]:
                path.unlink(missing_ok=True)
                self._locks.pop(path.stem, None)
                self._held.pop(path.stem, None)
                total -= status.st_size
                log.info("bundle.evicted", digest=path.stem)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _publish(part: Path, path: Path) -> None:
    sync(part)
    part.rename(path)
