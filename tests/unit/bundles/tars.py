"""Bundles that no writer of ours would make."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import zstandard

Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes = b"x", **fields: object) -> Member:
    return _info(name, tarfile.REGTYPE, size=len(content), **fields), content


def directory(name: str) -> Member:
    return _info(name, tarfile.DIRTYPE, mode=0o755), b""


def link(name: str, target: str) -> Member:
    return _info(name, tarfile.SYMTYPE, linkname=target), b""


def hard_link(name: str, target: str) -> Member:
    return _info(name, tarfile.LNKTYPE, linkname=target), b""


def device(name: str, kind: bytes = tarfile.CHRTYPE) -> Member:
    return _info(name, kind, devmajor=1, devminor=3), b""


def tar(members: Iterable[Member]) -> bytes:
    out = io.BytesIO()
    for info, content in members:
        out.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        out.write(content + bytes(-len(content) % 512))
    return out.getvalue() + bytes(1024)


def bundle(path: Path, members: Iterable[Member]) -> Path:
    path.write_bytes(zstandard.compress(tar(members)))
    return path


def _info(name: str, kind: bytes, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


HOSTILE: dict[str, tuple[list[Member], str]] = {
    "parent": ([file("../evil")], r"\.\./evil leads out of the bundle"),
    "parent within": ([directory("a"), file("a/../../evil")], "leads out of the bundle"),
    "absolute": ([file("/etc/evil")], "/etc/evil is an absolute path"),
    "dot": ([file("./evil")], r"\./evil is no path"),
    "double slash": ([directory("a"), file("a//evil")], "is no path"),
    "link out": ([link("evil", "../../etc")], "is a link that leads out of the bundle: ../../etc"),
    "absolute link": ([link("evil", "/etc/passwd")], "is a link that leads out of the bundle: /etc/passwd"),
    "link that climbs late": (
        [
            directory("a"),
            directory("a/b"),
            link("a/b/up", "../../top"),
            directory("top"),
            link("evil", "a/b/up/../.."),
        ],
        "climbs after it has descended",
    ),
    "empty link": ([link("evil", "")], "is a link to nothing"),
    "through a link": ([directory("a"), link("l", "a"), file("l/evil")], "l/evil is in no directory of the bundle"),
    "link in place of a directory": ([directory("a"), link("a", "b")], "a is in the bundle twice"),
    "twice": ([file("a"), file("a")], "a is in the bundle twice"),
    "no parent": ([file("a/b")], "a/b is in no directory of the bundle"),
    "character device": ([device("null")], "null is neither a file, nor a directory, nor a symbolic link"),
    "block device": ([device("disk", tarfile.BLKTYPE)], "disk is neither a file"),
    "pipe": ([device("pipe", tarfile.FIFOTYPE)], "pipe is neither a file"),
    "hard link": ([file("a"), hard_link("b", "a")], "b is neither a file"),
    "hard link out": ([hard_link("b", "/etc/passwd")], "b is neither a file"),
    "long name": ([file("a" * 256)], "is too long"),
    "deep": ([directory("/".join("a" * i)) for i in range(1, 66)], "is too long"),
    "names that are not text": ([file("a\udcff")], "not understood|UTF-8"),
}
