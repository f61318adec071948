"""Packaged code at the controller: uploads that go on, quotas, what is kept, and who may fetch it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from tests.integration.controller.cluster import Controller, job, refusal
from tests.support.stubs import bundle_stub, job_stub

from holdfast._sdk import bundle_calls
from holdfast.bundles.packing import Bundle
from holdfast.errors import BundleRefused, Denied, InvalidInput, InvalidSpec, NotFound, StorageFull
from holdfast.v1 import agent_pb2, bundle_pb2, bundle_pb2_grpc, job_pb2, spec_pb2
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles.bundle_store import BundleConfig, BundleStore
from holdfast_controller.shell.services.bundle_service import tend

MIB = 1 << 20


def made(path: Path, data: bytes) -> Bundle:
    path.write_bytes(data)
    return Bundle(path, hashlib.sha256(data).hexdigest(), len(data), 1, len(data))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return made(tmp_path / "bundle", os.urandom(3 * MIB + 17))


def stub(controller: Controller, who: str = "user/ann") -> bundle_pb2_grpc.BundleServiceAsyncStub:
    return bundle_stub(controller.channel(who))


async def standing(controller: Controller, digest: str, who: str = "user/ann") -> tuple[bool, int]:
    found = await stub(controller, who).GetBundle(bundle_pb2.GetBundleRequest(digest=digest))
    return found.complete, found.offset


def messages(bundle: Bundle, offset: int = 0, *, size: int = 0) -> Iterator[bundle_pb2.UploadBundleRequest]:
    opened = bundle_pb2.UploadOpen(digest=bundle.digest, size=size or bundle.size, offset=offset)
    yield bundle_pb2.UploadBundleRequest(open=opened)
    data = bundle.file.read_bytes()[offset:]
    for at in range(0, len(data), MIB):
        yield bundle_pb2.UploadBundleRequest(chunk=data[at : at + MIB])


def with_bundle(digest: str) -> job_pb2.CustomJob:
    submitted = job(gpus=0)
    pool = submitted.job_spec.worker_pool_specs[0]
    pool.machine_spec.Clear()
    pool.process_spec.packaged_code.bundle = digest
    return submitted


async def create(controller: Controller, submitted: job_pb2.CustomJob) -> job_pb2.CustomJob:
    jobs = job_stub(controller.channel("user/ann"))
    return (await jobs.CreateJob(job_pb2.CreateJobRequest(job=submitted))).job


async def test_a_bundle_is_sent_once_by_each_who_uses_it(
    controller: Controller, config: ControllerConfig, bundle: Bundle
) -> None:
    told: list[tuple[int, int]] = []
    assert await bundle_calls.upload(stub(controller), bundle, "", lambda *news: told.append(news))
    assert told[-1] == (bundle.size, bundle.size)
    assert not await bundle_calls.upload(stub(controller), bundle, "")
    assert await bundle_calls.upload(stub(controller, "user/bob"), bundle, "")
    assert not await bundle_calls.upload(stub(controller, "user/bob"), bundle, "")
    kept = config.state_dir / "bundles" / bundle.digest
    assert kept.read_bytes() == bundle.file.read_bytes()
    assert list((config.state_dir / "bundles/incoming").iterdir()) == []


async def test_an_upload_that_broke_goes_on_where_it_stood(controller: Controller, bundle: Bundle) -> None:
    async def breaks() -> AsyncIterator[bundle_pb2.UploadBundleRequest]:
        for number, message in enumerate(messages(bundle)):
            if number == 3:
                raise ConnectionError
            yield message

    call = stub(controller).UploadBundle(breaks())
    with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
        await call
    call.cancel()
    complete, offset = await standing(controller, bundle.digest)
    assert not complete
    assert offset % MIB == 0
    assert offset <= 2 * MIB
    assert await standing(controller, bundle.digest, "user/bob") == (False, 0)
    first: list[int] = []
    assert await bundle_calls.upload(stub(controller), bundle, "", lambda sent, _: first.append(sent))
    assert first[0] > offset
    assert await standing(controller, bundle.digest) == (True, 0)


async def test_wrong_bytes_are_not_kept(controller: Controller, config: ControllerConfig, bundle: Bundle) -> None:
    other = Bundle(bundle.file, "ab" * 32, bundle.size, 1, 1)
    code, error = await refusal(stub(controller).UploadBundle(messages(other)))
    assert (code, type(error)) == (grpc.StatusCode.INVALID_ARGUMENT, BundleRefused)
    assert await standing(controller, "ab" * 32) == (False, 0)
    assert [path for path in (config.state_dir / "bundles").rglob("*") if path.is_file()] == []


async def test_uploads_that_make_no_sense_are_refused(controller: Controller, bundle: Bundle) -> None:
    bundles = stub(controller)
    # Nothing is sent behind what is refused: gRPC may report the broken write and not the refusal.
    _, error = await refusal(bundles.UploadBundle(islice(messages(bundle, offset=5), 1)))
    assert "5 is not where the upload stands (go on from 0)" in str(error)
    _, error = await refusal(bundles.UploadBundle(islice(messages(bundle, size=1000), 2)))
    assert isinstance(error, BundleRefused) and "More than the 1,000 bytes" in str(error)
    _, error = await refusal(bundles.UploadBundle(iter([bundle_pb2.UploadBundleRequest(chunk=b"x")])))
    assert isinstance(error, InvalidInput) and "open" in str(error)
    _, error = await refusal(bundles.GetBundle(bundle_pb2.GetBundleRequest(digest="../../etc/passwd")))
    assert isinstance(error, InvalidInput) and "is no SHA-256" in str(error)


async def test_only_users_upload_and_only_hosts_fetch(controller: Controller, bundle: Bundle) -> None:
    _, error = await refusal(stub(controller, "host/host-0").UploadBundle(islice(messages(bundle), 1)))
    assert isinstance(error, Denied)
    with pytest.raises(grpc.aio.AioRpcError, match="PERMISSION_DENIED"):
        async for _ in stub(controller).FetchBundle(bundle_pb2.FetchBundleRequest(digest=bundle.digest)):
            pass


async def test_a_job_whose_bundle_is_not_there_is_refused(controller: Controller) -> None:
    _, error = await refusal(create(controller, with_bundle("ab" * 32)))
    assert isinstance(error, InvalidSpec)
    assert "processSpec.packagedCode.bundle: the bundle abababababab… is not here" in str(error)
    submitted = job(gpus=0)
    pool = submitted.job_spec.worker_pool_specs[0]
    pool.machine_spec.Clear()
    pool.python_package_spec.CopyFrom(spec_pb2.PythonPackageSpec(package_uris=["gs://b/x"], python_module="m"))
    _, error = await refusal(create(controller, submitted))
    assert "packageUris[0]: hosts can't fetch gs: URIs" in str(error)


async def test_the_hash_of_somebody_elses_bundle_is_not_enough_to_run_it(
    controller: Controller, bundle: Bundle
) -> None:
    await bundle_calls.upload(stub(controller, "user/bob"), bundle, "")
    assert await standing(controller, bundle.digest) == (False, 0)
    _, error = await refusal(create(controller, with_bundle(bundle.digest)))
    assert isinstance(error, InvalidSpec)
    assert f"the bundle {bundle.digest[:12]}… is not here" in str(error)
    await bundle_calls.upload(stub(controller), bundle, "")
    assert (await create(controller, with_bundle(bundle.digest))).id


async def test_a_host_with_work_of_a_bundle_fetches_it_from_any_offset(
    controller: Controller, bundle: Bundle
) -> None:
    await bundle_calls.upload(stub(controller), bundle, "")
    async with controller.agent() as agent:
        created = await create(controller, with_bundle(bundle.digest))
        await agent.until(lambda seen: seen.phases(created.id))
        [order] = [m.assignment for m in agent.said if m.WhichOneof("message") == "assignment"][:1]
        assert order.launch.process.packaged_code.bundle == bundle.digest
        for offset in (0, 5, bundle.size):
            call = stub(controller, "host/host-0").FetchBundle(
                bundle_pb2.FetchBundleRequest(digest=bundle.digest, offset=offset)
            )
            parts = [part async for part in call]
            assert parts[0].size == bundle.size
            assert b"".join(part.chunk for part in parts) == bundle.file.read_bytes()[offset:]
        for who in ("host/host-1", "user/ann"):
            with pytest.raises(grpc.aio.AioRpcError, match="PERMISSION_DENIED"):
                async for _ in stub(controller, who).FetchBundle(
                    bundle_pb2.FetchBundleRequest(digest=bundle.digest)
                ):
                    pass


async def test_what_takes_long_in_a_preparation_is_the_jobs_reason_to_wait(
    controller: Controller, bundle: Bundle
) -> None:
    await bundle_calls.upload(stub(controller), bundle, "")
    jobs = job_stub(controller.channel("user/ann"))
    async with controller.agent() as agent:
        agent.obey = False
        created = await create(controller, with_bundle(bundle.digest))
        await agent.until(lambda seen: seen.phases(created.id))
        [order] = [m.assignment for m in agent.said if m.WhichOneof("message") == "assignment"][:1]
        for _ in range(2):
            await agent.report(order, agent_pb2.REPORTED_STATE_PREPARING, "installing requirements")
        watch = jobs.WatchJob(job_pb2.WatchJobRequest(id=created.id))
        async for event in watch:
            if event.type == "PreparationNoted":
                break
        watch.cancel()
        assert event.message == "installing requirements on host-0"
        found = (await jobs.GetJob(job_pb2.GetJobRequest(id=created.id))).job
        assert found.wait_reason == "installing requirements on host-0"
        await agent.report(order, agent_pb2.REPORTED_STATE_PREPARED)
        await agent.until(lambda seen: "RUN" in seen.phases(created.id))


# The store by itself, on a clock of the test's


USERS = ("ann", "bob", "eve")
"""One alone may not fill the store."""


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def put(store: BundleStore, data: bytes, in_use: set[str] | None = None, owner: str = "ann") -> str:
    digest = hashlib.sha256(data).hexdigest()
    upload = store.begin(digest, len(data), 0, owner, in_use or set())
    try:
        upload.write(data)
        upload.finish()
    finally:
        upload.end()
    store.use(digest, owner)
    return digest


def there(store: BundleStore, digest: str) -> bool:
    try:
        return store.path(digest).exists()
    except NotFound:
        return False


def test_room_is_made_of_what_no_job_needs_longest_unused_first(tmp_path: Path) -> None:
    clock = Clock()
    store = BundleStore(tmp_path / "b", BundleConfig(limit_mb=2, store_mb=3), clock)
    first, second, third = (put_later(store, clock, bytes([i]) * MIB, USERS[i]) for i in range(3))
    clock.now += 1000
    store.use(first, "ann")
    clock.now += 1000
    fourth = put(store, b"4" * MIB, {third}, "dan")
    assert [there(store, d) for d in (first, second, third, fourth)] == [True, False, True, True]


def put_later(store: BundleStore, clock: Clock, data: bytes, owner: str) -> str:
    clock.now += 1000
    return put(store, data, owner=owner)


def test_what_jobs_need_stays_and_fills_the_store(tmp_path: Path) -> None:
    clock = Clock()
    store = BundleStore(tmp_path / "b", BundleConfig(limit_mb=2, store_mb=2, keep=1), clock)
    kept: set[str] = set()
    for number in range(2):
        kept.add(put(store, bytes([number]) * MIB, kept, USERS[number]))
        clock.now += 10**6
    with pytest.raises(StorageFull, match=r"keeps 2 bundles with 2 MiB and has no room.*store_mb"):
        put(store, b"x" * MIB, kept, "eve")
    assert all(there(store, digest) for digest in kept)
    store.collect(set())
    assert not any(there(store, digest) for digest in kept)


async def test_a_folder_that_can_not_be_read_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be a mount of its own, whose server is gone."""
    (tmp_path / "b").write_bytes(b"no folder")
    store = BundleStore(tmp_path / "b", BundleConfig())
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tending = tasks.create_task(tend(SimpleNamespace(cluster=Cluster()), store))  # type: ignore[arg-type]
        while "bundles.not_tended" not in caplog.messages:  # noqa: ASYNC110  # nothing says when
            await asyncio.sleep(0.01)
        assert not tending.done()
        tending.cancel()
    with pytest.raises(StorageFull, match=r"can't store the bundle: .*Tell an admin"):
        put(store, b"x" * MIB)


def test_what_is_gone_when_it_is_looked_at_is_passed_over(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(), Clock())
    digest = put(store, b"x" * MIB)
    for gone in (tmp_path / "b" / ("a" * 64), tmp_path / "b/incoming" / ("a" * 64)):
        gone.symlink_to("nowhere")
    store.collect({digest})
    put(store, b"y" * MIB)
    assert there(store, digest)


def test_a_bundle_just_sent_stays_for_the_job_that_comes_after_it(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(store_mb=2, keep=1), Clock())
    digest = put(store, b"x" * (3 * MIB // 2))
    store.collect(set())
    assert there(store, digest)
    with pytest.raises(StorageFull, match="has no room for another"):
        put(store, b"y" * MIB, owner="bob")


def test_there_are_bounds_on_one_and_on_how_many(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(limit_mb=1, store_count=2), Clock())
    with pytest.raises(StorageFull, match=r"has 1\.0 MiB packed; the cluster takes at most 1.*holdfastignore"):
        put(store, b"x" * (MIB + 1))
    put(store, b"1")
    put(store, b"2", owner="bob")
    with pytest.raises(StorageFull, match="store_count"):
        put(store, b"3", owner="eve")


def test_uploads_under_way_count(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(limit_mb=2, store_mb=3), Clock())
    first = store.begin("ab" * 32, 2 * MIB, 0, "ann", set())
    with pytest.raises(StorageFull):
        store.begin("cd" * 32, 2 * MIB, 0, "bob", set())
    first.end()
    store.begin("cd" * 32, 2 * MIB, 0, "bob", set()).end()


def test_the_newer_upload_of_the_same_takes_over(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(), Clock())
    data = b"x" * 10
    digest = hashlib.sha256(data).hexdigest()
    old = store.begin(digest, 10, 0, "ann", set())
    old.write(data[:4])
    new = store.begin(digest, 10, 4, "ann", set())
    with pytest.raises(Exception, match="has taken over"):
        old.write(data[4:])
    new.write(data[4:])
    new.finish()
    old.end()
    new.end()
    assert store.path(digest).read_bytes() == data


def test_parts_that_nobody_goes_on_with_go(tmp_path: Path) -> None:
    clock = Clock()
    store = BundleStore(tmp_path / "b", BundleConfig(keep=100), clock)
    upload = store.begin("ab" * 32, 10, 0, "ann", set())
    upload.write(b"x")
    upload.end()
    [part] = (tmp_path / "b/incoming").iterdir()
    os.utime(part, (clock.now, clock.now))
    store.collect(set())
    assert part.exists()
    clock.now += 10_000
    store.collect(set())
    assert not part.exists()


def test_nothing_but_a_hash_names_a_file(tmp_path: Path) -> None:
    store = BundleStore(tmp_path / "b", BundleConfig(), Clock())
    (tmp_path / "secret").write_text("x")
    for name in ("../secret", "", "incoming", "AB" * 32):
        with pytest.raises(NotFound):
            store.path(name)
        with pytest.raises(InvalidInput):
            store.begin(name, 1, 0, "ann", set())
