"""The inside of a bundle: a tar of directories, files and links within it, and nothing else, compressed by zstd.

Theory of operation. A caller who may upload can upload anything, so the reader takes only what the writer makes, and
refuses the rest before a byte of it is used. Names are relative, without ``.`` or ``..``, each once, parents first.
A symbolic link's target climbs only by leading ``..``, as far as the bundle's top and no further, and names what
follows: then each hop of any chain of links stays inside, which a look at the text alone can't promise otherwise.
Devices, pipes and hard links don't exist here. Sizes and counts are added up from the headers, so a bomb is found
before it is unpacked.
"""

from __future__ import annotations

import enum
import tarfile
from collections.abc import Callable, Iterator

from holdfast._base.dataclass import dataclass
from holdfast._base.printable import one_line
from holdfast.errors import BundleRefused

BLOCK = 512
MIB = 1 << 20
PAX_MAX_BYTES = 16 << 10
PATH_MAX_BYTES, NAME_MAX_BYTES, DEPTH_MAX = 4095, 255, 64
WINDOW_MAX_BYTES = 128 * MIB
"""Memory that unpacking may be asked for."""
RATIO_FREE_BYTES = 64 * MIB
"""Up to this size a bundle may be as compressible as it likes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Size limits of a bundle, the same for packing and unpacking unless a host's admin sets others."""

    files: int = 50_000
    """Directories and links included: code has thousands; what has more is data, or an environment."""
    bytes: int = 4096 * MIB
    """Unpacked."""
    ratio: int = 200
    """Unpacked to packed. Text compresses tenfold; zeros ten-thousandfold."""

    def unpacked_bytes(self, packed_bytes: int) -> int:
        """How much a bundle of that size may unpack to."""
        return min(self.bytes, max(RATIO_FREE_BYTES, packed_bytes * self.ratio))


class Kind(enum.Enum):
    """Kind of an entry."""

    FILE = b"0"
    LINK = b"2"
    DIRECTORY = b"5"


@dataclass(frozen=True, slots=True)
class Entry:
    """One member. ``size`` in bytes, of a file; ``target`` of a link."""

    path: str
    kind: Kind
    size: int = 0
    executable: bool = False
    target: str = ""


def header(entry: Entry) -> bytes:
    """The entry's tar header: equal for equal entries, independent of user and time."""
    info = tarfile.TarInfo(entry.path)
    info.type = entry.kind.value
    info.size = entry.size
    info.linkname = entry.target
    info.mode = 0o755 if entry.executable or entry.kind is Kind.DIRECTORY else 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    """Padding of a file's last block."""
    return bytes(-size % BLOCK)


END = bytes(2 * BLOCK)


class Reader:
    """Entries of a tar that may be hostile. ``read(n)`` gives at most n bytes, none at the end.

    Every method raises ``BundleRefused`` for what the writer would not have made, and for what exceeds ``most``.
    """

    def __init__(self, read: Callable[[int], bytes], *, files: int, most_bytes: int) -> None:
        self._read_some = read
        self._files, self._most_bytes = files, most_bytes
        self._seen: set[str] = {""}
        self._directories: set[str] = {""}
        self._bytes = 0
        self._rest = 0

    def entries(self) -> Iterator[Entry]:
        """Every entry, in order; a file's ``content`` is to be taken before the next one is asked for."""
        while True:
            if self._rest:
                raise AssertionError("the content of the last file was not taken")
            block = self._read(BLOCK)
            if not any(block):
                if any(self._read(BLOCK)) or self._read_some(1):
                    raise BundleRefused("The bundle has data after its end.")
                return
            entry = self._entry(block)
            self._count(entry)
            self._rest = entry.size
            yield entry

    def content(self, entry: Entry, chunk_bytes: int = MIB) -> Iterator[bytes]:
        """The bytes of the file that came last."""
        while self._rest:
            data = self._read(min(chunk_bytes, self._rest))
            self._rest -= len(data)
            yield data
        self._read(-entry.size % BLOCK)

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            data = self._read_some(count)
            if not data:
                raise BundleRefused("The bundle is cut off.")
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def _entry(self, block: bytes) -> Entry:
        more: dict[str, str] = {}
        if block[156:157] == b"x":
            size = _number(block[124:136])
            if size > PAX_MAX_BYTES:
                raise BundleRefused("The bundle has a header that is too long.")
            _check_sum(block)
            more = _pax(self._read(size + -size % BLOCK)[:size])
            block = self._read(BLOCK)
        _check_sum(block)
        path = more.get("path") or "/".join(filter(None, (_text(block[345:500]), _text(block[0:100]))))
        try:
            kind = Kind(block[156:157])
        except ValueError:
            raise BundleRefused(f"{shown(path)} is neither a file, nor a directory, nor a symbolic link.") from None
        size = int(more["size"]) if "size" in more else _number(block[124:136])
        target = more.get("linkpath") or _text(block[157:257])
        if kind is Kind.DIRECTORY:
            path = path.removesuffix("/")
        if kind is not Kind.FILE and size:
            raise BundleRefused(f"{shown(path)} has content, though it is no file.")
        entry = Entry(path, kind, size, bool(_number(block[100:108]) & 0o100), target if kind is Kind.LINK else "")
        check_path(entry.path)
        if kind is Kind.LINK:
            check_target(entry.path, entry.target)
        return entry

    def _count(self, entry: Entry) -> None:
        parent = entry.path.rpartition("/")[0]
        if entry.path in self._seen:
            raise BundleRefused(f"{shown(entry.path)} is in the bundle twice.")
        if parent not in self._directories:
            raise BundleRefused(f"{shown(entry.path)} is in no directory of the bundle.")
        self._seen.add(entry.path)
        if entry.kind is Kind.DIRECTORY:
            self._directories.add(entry.path)
        if len(self._seen) - 1 > self._files:
            raise BundleRefused(f"The bundle has more than {self._files:,} files.")
        self._bytes += entry.size
        if self._bytes > self._most_bytes:
            raise BundleRefused(f"The bundle unpacks to more than {self._most_bytes // MIB:,} MiB.")


def check_path(path: str) -> None:
    """Raises ``BundleRefused`` for a path that is not plainly one below the bundle's top."""
    parts = path.split("/")
    if path.startswith("/"):
        raise BundleRefused(f"{shown(path)} is an absolute path.")
    if ".." in parts:
        raise BundleRefused(f"{shown(path)} leads out of the bundle.")
    if "" in parts or "." in parts or "\0" in path:
        raise BundleRefused(f"{shown(path)} is no path.")
    sizes = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
    if max(sizes) > NAME_MAX_BYTES or sum(sizes) + len(sizes) > PATH_MAX_BYTES or len(parts) > DEPTH_MAX:
        raise BundleRefused(f"{shown(path)} is too long.")


def check_target(path: str, target: str) -> None:
    """Raises ``BundleRefused`` for a symbolic link that may lead out of the bundle."""
    if not target or "\0" in target or len(target.encode("utf-8", "surrogateescape")) > PATH_MAX_BYTES:
        raise BundleRefused(f"{shown(path)} is a link to nothing.")
    climbs, named = 0, False
    for part in target.split("/"):
        if part == "..":
            if named:
                raise BundleRefused(f"{shown(path)} is a link that climbs after it has descended: {shown(target)}.")
            climbs += 1
        elif part not in ("", "."):
            named = True
    if target.startswith("/") or climbs > path.count("/"):
        raise BundleRefused(f"{shown(path)} is a link that leads out of the bundle: {shown(target)}.")


def shown(path: str) -> str:
    """A path for a message: bounded, on one line."""
    return one_line(path, 120) or "''"


def _text(field: bytes) -> str:
    try:
        return field.split(b"\0", 1)[0].decode()
    except UnicodeDecodeError:
        raise BundleRefused("The bundle has a name that is not UTF-8.") from None


def _number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise BundleRefused("The bundle has a damaged header.")
    return int(digits, 8)


def _check_sum(block: bytes) -> None:
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise BundleRefused("The bundle has a damaged header.")


def _pax(data: bytes) -> dict[str, str]:
    """The records "LENGTH KEY=VALUE" of an extended header; only of the keys that the writer uses."""
    found: dict[str, str] = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) + 2 < int(length) <= len(data):
            raise BundleRefused("The bundle has a damaged header.")
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        key, _, value = record.partition(b"=")
        if key not in (b"path", b"linkpath", b"size") or (
            key == b"size" and not (value.isdigit() and len(value) < 16)
        ):
            raise BundleRefused("The bundle has a header that is not understood.")
        try:
            found[key.decode()] = value.decode()
        except UnicodeDecodeError:
            raise BundleRefused("The bundle has a name that is not UTF-8.") from None
    return found
