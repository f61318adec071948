"""``BundleService``: users upload packaged code, and hosts with workers that need it fetch it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator

from holdfast._daemon import log
from holdfast.errors import Denied, InvalidInput, Unavailable, Violation
from holdfast.v1 import bundle_pb2, bundle_pb2_grpc
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.step.assignment import on_host
from holdfast_controller.shell.bundles.bundle_store import BundleStore
from holdfast_controller.shell.calls.rpc import Context, caller_name, streaming, unary
from holdfast_controller.shell.driver import Driver

CHUNK_BYTES = 512 << 10
TEND_EVERY_S = 3_600.0


class BundleService(bundle_pb2_grpc.BundleServiceServicer):
    """Serves the bundles of one store."""

    def __init__(self, driver: Driver, store: BundleStore) -> None:
        self._driver, self._store = driver, store

    @unary
    async def GetBundle(
        self, request: bundle_pb2.GetBundleRequest, context: Context
    ) -> bundle_pb2.GetBundleResponse:
        owner = caller_name(context)
        complete, offset = await asyncio.to_thread(self._store.progress_of, request.digest, owner)
        return bundle_pb2.GetBundleResponse(complete=complete, offset=offset)

    @unary
    async def UploadBundle(
        self, messages: AsyncIterator[bundle_pb2.UploadBundleRequest], context: Context
    ) -> bundle_pb2.UploadBundleResponse:
        owner = caller_name(context)
        opened = await anext(messages, bundle_pb2.UploadBundleRequest())
        if opened.WhichOneof("message") != "open":
            raise InvalidInput([Violation("open", "is not the first message of the upload")])
        what = opened.open
        upload = await asyncio.to_thread(
            self._store.begin, what.digest, what.size, what.offset, owner, in_use(self._driver.cluster)
        )
        try:
            async for message in messages:
                if message.WhichOneof("message") != "chunk":
                    raise InvalidInput([Violation("chunk", "is missing")])
                await asyncio.to_thread(upload.write, message.chunk)
            await asyncio.to_thread(upload.finish)
        finally:
            # In a thread, and not awaited: an earlier call of a caller who has left may still use the file.
            asyncio.get_running_loop().run_in_executor(None, upload.end)
        return bundle_pb2.UploadBundleResponse()

    @streaming
    async def FetchBundle(
        self, request: bundle_pb2.FetchBundleRequest, context: Context
    ) -> AsyncGenerator[bundle_pb2.FetchBundleResponse, None]:
        host = caller_name(context)
        if not has_work_of(self._driver.cluster, host, request.digest):
            raise Denied(f"{host} has no work of this bundle.")
        found = await asyncio.to_thread(self._store.path, request.digest)
        handle = await asyncio.to_thread(os.open, found, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(handle).st_size
            if not 0 <= request.offset <= size:
                raise InvalidInput([Violation("offset", f"{request.offset} is not within its {size} bytes")])
            yield bundle_pb2.FetchBundleResponse(size=size)
            at = request.offset
            while chunk := await asyncio.to_thread(os.pread, handle, CHUNK_BYTES, at):
                at += len(chunk)
                yield bundle_pb2.FetchBundleResponse(chunk=chunk)
        finally:
            os.close(handle)


async def tend(driver: Driver, store: BundleStore) -> None:
    """Remove bundles that no job has needed for long, now and every hour, until cancelled."""
    while True:
        try:
            await asyncio.to_thread(store.collect, in_use(driver.cluster))
        except Unavailable:
            pass  # it was noted; what stays is looked at again
        except OSError as error:
            log.warning("bundles.not_tended", error=str(error))
        await asyncio.sleep(TEND_EVERY_S)


def in_use(cluster: Cluster) -> frozenset[str]:
    """Digests of the bundles of all jobs that have not ended."""
    gangs = [job.gang for job in cluster.jobs.whole.values() if not job.terminal]
    gangs += [schedule.plan.gang for schedule in cluster.schedules.values()]
    codes = (pool.task.code for gang in gangs for pool in gang.pools)
    return frozenset(code.bundle for code in codes if code is not None and code.bundle)


def has_work_of(cluster: Cluster, host: str, digest: str) -> bool:
    """Whether a worker that is placed on the host needs the bundle."""
    if host not in cluster.hosts:
        return False
    workers = (job.gang.pool_of(job.gang.members[index]) for job, index in on_host(cluster, host))
    return any(pool.task.code is not None and pool.task.code.bundle == digest for pool in workers)
