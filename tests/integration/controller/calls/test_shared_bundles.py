"""Packaged code in a place that several controllers share: a folder, and a bucket on a server of S3."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.controller.calls.test_bundles import MIB, put, there
from tests.support import s3
from tests.support.s3 import S3

from holdfast.dev import plan, ports
from holdfast.errors import ConfigError, MissingPackages, NotFound, Unavailable
from holdfast_controller.shell.bundles import shared_place
from holdfast_controller.shell.bundles.bundle_store import BundleConfig, BundleStore
from holdfast_controller.shell.bundles.shared_place import SharedPlace

A_WEEK_S = 7 * 86_400


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with ports.Reserved() as reserved:
        free = plan.controller_ports(ports.ephemeral_range())
        port = next(port for port in free if reserved.take([port]))
        with s3.running(port) as made:
            yield made


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.require("s3"))])
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where both controllers keep bundles."""
    if request.param == "folder":
        (tmp_path / "shared").mkdir()
        return f"file://{tmp_path}/shared"
    for name, value in request.getfixturevalue("server").env.items():
        monkeypatch.setenv(name, value)
    return f"s3://holdfast/{tmp_path.name}"


def controllers(tmp_path: Path, shared: str) -> tuple[BundleStore, BundleStore]:
    """The stores of two, each with files of its own."""
    one, two = (BundleStore(tmp_path / name / "bundles", BundleConfig(shared=shared)) for name in ("one", "two"))
    return one, two


def test_what_one_was_sent_the_other_serves_to_who_has_sent_it(tmp_path: Path, shared: str) -> None:
    one, two = controllers(tmp_path, shared)
    data = os.urandom(9 * MIB + 5)
    digest = put(one, data)
    assert two.progress_of(digest, "ann") == (True, 0)
    two.use(digest, "ann")
    assert two.path(digest).read_bytes() == data
    assert two.progress_of(digest, "bob") == (False, 0), "who knows its hash alone may not have it run"
    with pytest.raises(NotFound):
        two.use(digest, "bob")
    put(two, data, owner="bob")
    one.use(digest, "bob")
    assert list((tmp_path / "two/bundles/incoming").iterdir()) == []


def test_what_is_nowhere_is_not_found(tmp_path: Path, shared: str) -> None:
    one, _ = controllers(tmp_path, shared)
    with pytest.raises(NotFound):
        one.path("ab" * 32)
    with pytest.raises(NotFound):
        one.use("../../etc/passwd", "ann")


def test_bytes_that_are_not_those_of_the_bundle_are_not_served(tmp_path: Path, shared: str) -> None:
    one, two = controllers(tmp_path, shared)
    digest = put(one, b"right")
    wrong = tmp_path / "wrong"
    wrong.write_bytes(b"wrong bytes")
    assert one._shared is not None
    one._shared.remove(digest)
    one._shared.put(wrong, digest, [one._mark(digest, "ann").name])
    with pytest.raises(NotFound):
        two.use(digest, "ann")
    assert not there(two, digest) and there(one, digest)
    assert list((tmp_path / "two/bundles/incoming").iterdir()) == []


def test_an_object_beyond_the_bound_on_a_bundle_is_not_fetched(tmp_path: Path, shared: str) -> None:
    one, _ = controllers(tmp_path, shared)
    digest = put(one, os.urandom(2 * MIB))
    small = BundleStore(tmp_path / "two/bundles", BundleConfig(limit_mb=1, shared=shared))
    with pytest.raises(NotFound):
        small.use(digest, "ann")
    assert not list((tmp_path / "two/bundles").glob("*" + digest[:8] + "*"))
    assert list((tmp_path / "two/bundles/incoming").iterdir()) == []


def test_what_only_one_machine_has_gets_into_the_shared_place(tmp_path: Path, shared: str) -> None:
    alone = BundleStore(tmp_path / "one/bundles", BundleConfig())
    digest = put(alone, b"sent before there was a shared place")
    one, two = controllers(tmp_path, shared)
    assert not there(two, digest)
    one.collect({digest})
    two.use(digest, "ann")


def test_what_no_job_has_needed_for_long_goes_there_too(tmp_path: Path, shared: str) -> None:
    one, two = controllers(tmp_path, shared)
    needed, unused = put(one, b"needed"), put(one, b"unused")
    later = BundleStore(tmp_path / "three/bundles", BundleConfig(shared=shared), lambda: time.time() + A_WEEK_S)
    later.collect({needed})
    assert there(two, needed) and not there(two, unused)
    assert one._shared is not None and set(one._shared.stored()) == {needed}
    assert not one._shared.has_mark(one._mark(unused, "ann").name)


@pytest.mark.require("s3")
def test_an_upload_is_acknowledged_once_the_shared_place_has_it(
    tmp_path: Path, server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shared_place, "_RETRIES", {"max_retries": 0})
    one, two = controllers(tmp_path, f"s3://holdfast/{tmp_path.name}")
    data = os.urandom(MIB)
    digest = hashlib.sha256(data).hexdigest()
    upload = one.begin(digest, len(data), 0, "ann", set())
    upload.write(data)
    server.stop()
    try:
        with pytest.raises(Unavailable, match="where packaged code is kept, can't be used"):
            upload.finish()
        with pytest.raises(Unavailable):
            two.use(digest, "ann")
        with pytest.raises(Unavailable):
            two.collect(set())
    finally:
        upload.end()
        server.start()
    assert one.progress_of(digest, "ann") == (False, len(data)), "nothing has to be sent again"
    upload = one.begin(digest, len(data), len(data), "ann", set())
    upload.finish()
    upload.end()
    two.use(digest, "ann")


@pytest.mark.parametrize("url", ["s3://", "s3:///", "file://relative", "gs://bucket", "/srv/bundles", "file:///"])
def test_what_is_no_such_place_is_refused_with_the_settings(url: str) -> None:
    with pytest.raises(ConfigError, match=r"bundles\.shared") as refused:
        BundleConfig(shared=url)
    assert "s3://BUCKET/FOLDER" in refused.value.fix


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackages, match="obstore"):
        BundleStore(tmp_path, BundleConfig(shared="s3://b/c"))


def test_what_was_fetched_counts_at_once_and_the_longest_unused_goes_for_it(tmp_path: Path, shared: str) -> None:
    one, _ = controllers(tmp_path, shared)
    digests = [put(one, os.urandom(MIB)) for _ in range(3)]
    small = BundleStore(tmp_path / "two/bundles", BundleConfig(store_mb=2, shared=shared))
    for age_s, digest in enumerate(digests[:2]):
        small.use(digest, "ann")
        os.utime(small.path(digest), (time.time() - 5000 + age_s,) * 2)
    small.use(digests[2], "ann")
    here = tmp_path / "two/bundles"
    assert {each for each in digests if (here / each).exists()} == set(digests[1:])
    small.use(digests[0], "ann")
    assert small.path(digests[0]).stat().st_size == MIB, "it is in the shared place"


def test_what_only_this_machine_has_never_goes_for_what_was_fetched(tmp_path: Path, shared: str) -> None:
    alone = BundleStore(tmp_path / "two/bundles", BundleConfig())
    mine = put(alone, os.urandom(2 * MIB))
    os.utime(alone.path(mine), (time.time() - 5000,) * 2)
    one, _ = controllers(tmp_path, shared)
    digest = put(one, os.urandom(MIB))
    BundleStore(tmp_path / "two/bundles", BundleConfig(store_mb=2, shared=shared)).use(digest, "ann")
    assert alone.path(mine).exists()


def test_a_folder_that_is_not_there_is_never_made(tmp_path: Path) -> None:
    one, _ = controllers(tmp_path, f"file://{tmp_path}/shared")
    with pytest.raises(Unavailable, match="is not there: make it, or mount what belongs there"):
        put(one, b"code")
    assert not (tmp_path / "shared").exists()


def test_a_folder_that_can_have_no_mark_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(os, "link", refuses)
    (tmp_path / "shared").mkdir()
    one, _ = controllers(tmp_path, f"file://{tmp_path}/shared")
    with pytest.raises(Unavailable, match="Operation not supported"):
        put(one, b"code")
    assert list((tmp_path / "shared").iterdir()) == []


def test_an_empty_mount_point_is_not_taken_for_the_folder_that_was_used_before(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    one, two = controllers(tmp_path, f"file://{shared}")
    digest = put(one, b"code")
    two.use(digest, "ann")
    shared.rename(tmp_path / "elsewhere")
    shared.mkdir()
    for store in (one, *controllers(tmp_path, f"file://{shared}")):
        with pytest.raises(Unavailable, match="its mount is missing"):
            put(store, b"more code")
    assert list(shared.iterdir()) == []
    shared.rmdir()
    (tmp_path / "elsewhere").rename(shared)
    two.use(put(one, b"more code"), "ann")


@pytest.mark.parametrize("there", [True, False])
def test_the_check_of_settings_tries_the_place(tmp_path: Path, *, there: bool) -> None:
    place = SharedPlace(f"file://{tmp_path}/shared")
    if there:
        (tmp_path / "shared").mkdir()
        place.check()
        assert [each for each in (tmp_path / "shared").rglob("*") if each.is_file()] == []
    else:
        with pytest.raises(Unavailable, match="is not there"):
            place.check()


@pytest.mark.require("s3")
def test_the_check_of_settings_names_a_bucket_that_is_not_there(
    tmp_path: Path, server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    SharedPlace(f"s3://holdfast/{tmp_path.name}").check()
    with pytest.raises(Unavailable, match="s3://nowhere/x, where packaged code is kept, can't be used"):
        SharedPlace("s3://nowhere/x").check()
