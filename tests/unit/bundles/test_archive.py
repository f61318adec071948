"""What of an archive is refused before anything of it is used."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bundles import tars

from holdfast.bundles.archive import Entry, Kind, Limits, Reader, check_target, header, padding
from holdfast.errors import BundleRefused


def read(data: bytes, *, files: int = 100, most_bytes: int = 1 << 20) -> list[tuple[Entry, bytes]]:
    reader = Reader(io.BytesIO(data).read, files=files, most_bytes=most_bytes)
    return [(entry, b"".join(reader.content(entry))) for entry in reader.entries()]


def written(entries: list[tuple[Entry, bytes]]) -> bytes:
    return b"".join(header(e) + content + padding(len(content)) for e, content in entries) + bytes(1024)


@pytest.mark.parametrize("name", tars.HOSTILE)
def test_hostile_archives_are_refused(name: str) -> None:
    members, complaint = tars.HOSTILE[name]
    with pytest.raises(BundleRefused, match=complaint):
        read(tars.tar(members))


def test_what_is_written_is_read() -> None:
    long = "d/" + "n" * 200
    entries = [
        (Entry("d", Kind.DIRECTORY), b""),
        (Entry("d/empty", Kind.FILE), b""),
        (Entry("d/run", Kind.FILE, 5, executable=True), b"hello"),
        (Entry(long, Kind.FILE, 513), b"x" * 513),
        (Entry("d/up", Kind.LINK, target="../d/run"), b""),
        (Entry("häuser ☃", Kind.FILE, 1), b"y"),
    ]
    found = read(written(entries))
    assert [content for _, content in found] == [content for _, content in entries]
    assert [(e.path, e.kind, e.size, e.target) for e, _ in found] == [
        (e.path, e.kind, e.size, e.target) for e, _ in entries
    ]
    assert [e.executable for e, _ in found if e.kind is Kind.FILE] == [False, True, False, False]


def test_no_more_files_than_allowed() -> None:
    members = [tars.file(f"f{i}") for i in range(11)]
    assert len(read(tars.tar(members), files=11)) == 11
    with pytest.raises(BundleRefused, match="more than 10 files"):
        read(tars.tar(members), files=10)


def test_a_hundred_thousand_files_are_more_than_code_has() -> None:
    assert Limits().files < 100_000


def test_a_bomb_is_found_by_its_headers() -> None:
    info, _ = tars.file("zeros")
    info.size = 1 << 40
    with pytest.raises(BundleRefused, match="unpacks to more than 1 MiB"):
        read(info.tobuf(tarfile.PAX_FORMAT))


def test_how_much_a_bundle_may_unpack_to_goes_by_its_size() -> None:
    limits = Limits(bytes=1 << 30, ratio=100)
    assert limits.unpacked_bytes(10) == 64 << 20
    assert limits.unpacked_bytes(1 << 20) == 100 << 20
    assert limits.unpacked_bytes(1 << 29) == 1 << 30


@pytest.mark.parametrize("cut", [1, 511, 512, 600, 1024, 1535])
def test_what_is_cut_off_is_refused(cut: int) -> None:
    whole = tars.tar([tars.file("a", b"y" * 100)])
    with pytest.raises(BundleRefused, match="cut off"):
        read(whole[: len(whole) - cut])


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(BundleRefused, match="has data after its end"):
        read(tars.tar([tars.file("a")]) + b"more")


def test_damaged_headers_are_refused() -> None:
    whole = bytearray(tars.tar([tars.file("a")]))
    whole[0] ^= 1
    with pytest.raises(BundleRefused, match="damaged header"):
        read(bytes(whole))


@pytest.mark.parametrize(
    "record",
    [b"12 foo=bar12\n", b"999999 path=a\n", b"x path=a\n", b"9 size=-1\n", b"99 size=" + b"9" * 90 + b"\n"],
)
def test_extended_headers_of_others_are_refused(record: bytes) -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = b"x", len(record)
    block = info.tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(BundleRefused, match="header"):
        read(block + record + bytes(-len(record) % 512) + tars.tar([tars.file("a")]))


def test_an_extended_header_that_is_too_long_is_not_read() -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = b"x", 1 << 30
    with pytest.raises(BundleRefused, match="too long"):
        read(info.tobuf(tarfile.USTAR_FORMAT))


@given(st.binary(max_size=2048))
def test_no_bytes_make_anything_but_entries_or_a_refusal(data: bytes) -> None:
    try:
        read(data)
    except BundleRefused:
        pass


@given(st.lists(st.sampled_from(["..", ".", "a", "b", ""]), min_size=1, max_size=6).map("/".join))
def test_a_link_that_is_taken_stays_within_however_its_names_resolve(target: str) -> None:
    try:
        check_target("x/y/link", target)
    except BundleRefused:
        return
    depth, descended = 2, False
    for part in target.split("/"):
        depth -= part == ".."
        descended |= part not in ("..", ".", "")
        assert depth >= 0
        assert not (descended and part == "..")
