"""Bundles become directories, or nothing at all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from tests.unit.bundles import tars

from holdfast.bundles import packing
from holdfast.bundles.archive import Limits
from holdfast.errors import BundleRefused
from holdfast_agent.shell.packages.unpack import unpack


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    made = tmp_path / "staging"
    made.mkdir()
    return made


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", tars.HOSTILE)
def test_hostile_bundles_leave_nothing_on_disk(name: str, tmp_path: Path, staging: Path) -> None:
    members, complaint = tars.HOSTILE[name]
    bundle = tars.bundle(tmp_path / "bundle", [tars.file("good"), *members])
    before = everything(tmp_path)
    with pytest.raises(BundleRefused, match=complaint):
        unpack(bundle, tmp_path / "target", staging, Limits())
    assert everything(tmp_path) == before
    assert not Path("/etc/evil").exists()


def test_bombs_leave_nothing_on_disk(tmp_path: Path, staging: Path) -> None:
    compressor = zstandard.ZstdCompressor(level=19).compressobj()
    info, _ = tars.file("zeros")
    info.size = 256 << 20
    data = [compressor.compress(info.tobuf())]
    data += [compressor.compress(bytes(1 << 20)) for _ in range(256)]
    bundle = tmp_path / "bundle"
    bundle.write_bytes(b"".join([*data, compressor.compress(bytes(1024)), compressor.flush()]))
    assert bundle.stat().st_size < 1 << 20
    for limits in (Limits(), Limits(bytes=1 << 20, ratio=10**9)):
        with pytest.raises(BundleRefused, match="unpacks to more than"):
            unpack(bundle, tmp_path / "target", staging, limits)
    many = tars.bundle(tmp_path / "many", (tars.file(f"f{i}", b"") for i in range(100_000)))
    with pytest.raises(BundleRefused, match="more than 2,000 files"):
        unpack(many, tmp_path / "target", staging, Limits(files=2_000))
    assert everything(tmp_path) == {"bundle", "many", "staging"}


def test_what_needs_a_huge_window_is_refused(tmp_path: Path, staging: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, chain_log=10, hash_log=10, enable_ldm=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = compressor.compress(tars.tar([tars.file("a")])) + compressor.flush()
    (tmp_path / "bundle").write_bytes(packed)
    with pytest.raises(BundleRefused, match="damaged"):
        unpack(tmp_path / "bundle", tmp_path / "target", staging, Limits())
    assert everything(tmp_path) == {"bundle", "staging"}


@pytest.mark.parametrize("data", [b"", b"no zstd", zstandard.compress(bytes(100))])
def test_what_is_no_bundle_is_refused(data: bytes, tmp_path: Path, staging: Path) -> None:
    (tmp_path / "bundle").write_bytes(data)
    with pytest.raises(BundleRefused, match=r"damaged|cut off"):
        unpack(tmp_path / "bundle", tmp_path / "target", staging, Limits())
    assert everything(tmp_path) == {"bundle", "staging"}


def test_what_was_packed_is_what_is_unpacked(tmp_path: Path, staging: Path) -> None:
    folder = tmp_path / "code"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/x.py").write_text("x")
    (folder / "run.sh").write_text("#!")
    (folder / "run.sh").chmod(0o755)
    (folder / "up").symlink_to("a/b")
    packed = packing.pack(folder, tmp_path / "bundle")
    unpack(packed.file, tmp_path / "target", staging, Limits())
    assert everything(tmp_path / "target") == everything(folder)
    assert (tmp_path / "target/up/x.py").read_text() == "x"
    assert os.access(tmp_path / "target/run.sh", os.X_OK)
    assert not os.access(tmp_path / "target/a/b/x.py", os.X_OK)
    assert list(staging.iterdir()) == []


@pytest.mark.require("root")
def test_all_of_it_belongs_to_the_workers_user(tmp_path: Path, staging: Path) -> None:
    folder = tmp_path / "code"
    (folder / "a").mkdir(parents=True)
    (folder / "a/x").write_text("x")
    (folder / "l").symlink_to("a")
    packed = packing.pack(folder, tmp_path / "bundle")
    unpack(packed.file, tmp_path / "target", staging, Limits(), (12345, 12346))
    for path in (tmp_path / "target", *(tmp_path / "target").rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (12345, 12346)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.require("mount")
def test_a_full_disk_keeps_nothing_of_it(tmp_path: Path, small_disk: Path) -> None:
    bundle = tars.bundle(tmp_path / "bundle", [tars.file("big", os.urandom(3 << 20))])
    with pytest.raises(OSError, match="No space left"):
        unpack(bundle, small_disk / "target", small_disk, Limits())
    assert list(small_disk.iterdir()) == []
