"""Bundles come to a host whole or not at all, however often the link breaks."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from holdfast._base.addresses import Addresses
from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, tls
from holdfast._security.tls import TlsFiles
from holdfast.v1 import bundle_pb2, bundle_pb2_grpc
from holdfast_agent.shell.packages.bundles import BundleCache
from holdfast_agent.shell.packages.settings import CodeProblem

DATA = os.urandom(100_000)
DIGEST = hashlib.sha256(DATA).hexdigest()
CHUNK = 10_000


@dataclass
class Source(bundle_pb2_grpc.BundleServiceServicer):
    """A controller that breaks off after each ``breaks_after`` chunks, and remembers what it was asked for."""

    data: dict[str, bytes] = field(default_factory=lambda: {DIGEST: DATA})
    breaks_after: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    refusal: grpc.StatusCode | None = None

    async def FetchBundle(self, request: Any, context: Any) -> AsyncIterator[bundle_pb2.FetchBundleResponse]:
        self.asked.append(request.offset)
        if self.refusal is not None:
            await context.abort(self.refusal, "no such bundle here")
        data = self.data[request.digest]
        chunks = self.breaks_after.pop(0) if self.breaks_after else None
        yield bundle_pb2.FetchBundleResponse(size=len(data))
        for number, at in enumerate(range(request.offset, len(data), CHUNK)):
            if number == chunks:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
            yield bundle_pb2.FetchBundleResponse(chunk=data[at : at + CHUNK])


@pytest.fixture
def source() -> Source:
    return Source()  # type: ignore[abstract]  # agents call nothing else


@pytest.fixture
async def served(source: Source, tmp_path: Path) -> AsyncIterator[tuple[str, TlsFiles]]:
    keys = tmp_path / "pki"
    keys.mkdir()
    pki.create_ca("test", keys)
    own = pki.issue(keys, Identity("test", Kind.CONTROLLER, "c"), keys, "controller", server=True)
    host = pki.issue(keys, Identity("test", Kind.HOST, "host-0"), keys, "host-0")
    server = grpc.aio.server()
    bundle_pb2_grpc.add_BundleServiceServicer_to_server(source, server)
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(own))
    await server.start()
    yield f"127.0.0.1:{port}", host
    await server.stop(None)


def cache(
    served: tuple[str, TlsFiles], tmp_path: Path, *, most: int = 1 << 30, timeout_s: float = 60
) -> BundleCache:
    address, files = served
    return BundleCache(Addresses(address), files, tmp_path / "bundles", most, timeout_s)


def nothing() -> None:
    raise AssertionError("it was to be there already")


async def test_a_bundle_is_fetched_once(source: Source, served: Any, tmp_path: Path) -> None:
    bundles = cache(served, tmp_path)
    assert (await bundles.get(DIGEST, lambda: None)).read_bytes() == DATA
    await bundles.get(DIGEST, nothing)
    await cache(served, tmp_path).get(DIGEST, nothing)
    assert source.asked == [0]


async def test_workers_that_come_together_fetch_it_once(source: Source, served: Any, tmp_path: Path) -> None:
    bundles = cache(served, tmp_path)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(bundles.get, DIGEST, lambda: None)
    assert source.asked == [0]


async def test_a_fetch_that_breaks_goes_on_where_it_stood(source: Source, served: Any, tmp_path: Path) -> None:
    source.breaks_after = [3, 0, 4]
    assert (await cache(served, tmp_path).get(DIGEST, lambda: None)).read_bytes() == DATA
    assert len(source.asked) == 4
    assert source.asked == sorted(source.asked)
    assert source.asked[-1] > 0


async def test_a_part_that_is_not_right_is_never_used(source: Source, served: Any, tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / f"bundles/{DIGEST}.part").write_bytes(bytes(5_000))
    assert (await cache(served, tmp_path).get(DIGEST, lambda: None)).read_bytes() == DATA
    assert source.asked == [5_000, 0]


async def test_a_part_that_is_longer_than_the_bundle_is_fetched_anew(
    source: Source, served: Any, tmp_path: Path
) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / f"bundles/{DIGEST}.part").write_bytes(DATA + b"x")
    assert (await cache(served, tmp_path).get(DIGEST, lambda: None)).read_bytes() == DATA


async def test_what_comes_wrong_again_and_again_is_given_up(source: Source, served: Any, tmp_path: Path) -> None:
    source.data = {DIGEST: b"other"}
    with pytest.raises(CodeProblem, match="does not come as it was sent") as caught:
        await cache(served, tmp_path).get(DIGEST, lambda: None)
    assert caught.value.host_fault
    assert list((tmp_path / "bundles").iterdir()) == []


async def test_a_bundle_that_is_gone_is_no_fault_of_the_hosts(source: Source, served: Any, tmp_path: Path) -> None:
    source.refusal = grpc.StatusCode.NOT_FOUND
    with pytest.raises(CodeProblem, match="can't be fetched: no such bundle here") as caught:
        await cache(served, tmp_path).get(DIGEST, lambda: None)
    assert not caught.value.host_fault


async def test_a_fetch_that_takes_too_long_ends_and_can_be_gone_on_with(
    source: Source, served: Any, tmp_path: Path
) -> None:
    source.breaks_after = [1] + [0] * 1000
    with pytest.raises(CodeProblem, match="within 2 s"):
        await cache(served, tmp_path, timeout_s=2).get(DIGEST, lambda: None)
    assert [path.name for path in (tmp_path / "bundles").iterdir()] in ([], [f"{DIGEST}.part"])
    source.breaks_after = []
    assert (await cache(served, tmp_path).get(DIGEST, lambda: None)).read_bytes() == DATA


async def test_the_longest_unused_goes(source: Source, served: Any, tmp_path: Path) -> None:
    sent = [os.urandom(1000) for _ in range(3)]
    digests = [hashlib.sha256(data).hexdigest() for data in sent]
    source.data = dict(zip(digests, sent, strict=True))
    bundles = cache(served, tmp_path, most=2500)
    for number, digest in enumerate(digests[:2]):
        os.utime(await bundles.get(digest, lambda: None), (number, number))
    await bundles.get(digests[2], lambda: None)
    assert {path.name for path in (tmp_path / "bundles").iterdir()} == set(digests[1:])


async def test_one_that_has_become_another_name_meanwhile_is_passed_over(
    source: Source, served: Any, tmp_path: Path
) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/gone.part").symlink_to("no-longer-there")
    assert (await cache(served, tmp_path).get(DIGEST, lambda: None)).read_bytes() == DATA


async def test_a_bundle_that_is_not_unpacked_yet_stays(source: Source, served: Any, tmp_path: Path) -> None:
    sent = [os.urandom(1000) for _ in range(3)]
    digests = [hashlib.sha256(data).hexdigest() for data in sent]
    source.data = dict(zip(digests, sent, strict=True))
    bundles = cache(served, tmp_path, most=1500)
    async with bundles.held(digests[0], lambda: None) as waits, bundles.held(digests[0], nothing):
        for digest in digests[1:]:
            await bundles.get(digest, lambda: None)
        assert waits.read_bytes() == sent[0]
        assert {path.name for path in (tmp_path / "bundles").iterdir()} == {digests[0], digests[2]}
    await bundles.get(digests[1], lambda: None)
    assert {path.name for path in (tmp_path / "bundles").iterdir()} == {digests[1]}


@pytest.mark.require("mount")
async def test_a_full_disk_keeps_no_part_of_it(source: Source, served: Any, tmp_path: Path) -> None:
    place = tmp_path / "bundles"
    place.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(place)])
    try:
        with pytest.raises(OSError, match="No space left"):
            await cache(served, tmp_path).get(DIGEST, lambda: None)
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)  # noqa: ASYNC221
