"""Packs a folder into a bundle. The same files give the same bytes, independent of user and time.

Names are sorted, owners and times are left out, of the modes only whether a file may be executed remains. A folder
that changes while it is read is found out: each file is looked at before and after it is read, and the whole folder
once more at the end.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast.bundles import archive, ignore
from holdfast.bundles.archive import Entry, Kind, Limits
from holdfast.errors import BundleRefused

LEVEL = 3
CHUNK_BYTES = 1 << 20
_AGAIN = "Try again once nothing writes there any more, or leave it out with .holdfastignore."
_LEAVE_OUT = "Leave it out with a line in .holdfastignore."


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle in a file."""

    file: Path
    digest: str
    size: int
    """In bytes, packed."""
    files: int
    unpacked_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """One thing to be packed, and how it looked. ``mark`` changes when the file does."""

    source: Path
    entry: Entry
    mark: tuple[int, ...]


def pack(
    folder: Path,
    out: Path,
    *,
    extra: Iterable[tuple[str, Path]] = (),
    keep: Iterable[str] = (),
    limits: Limits | None = None,
) -> Bundle:
    """Write the bundle of ``folder`` to ``out``.

    ``extra`` are (path in the bundle, file or folder) from elsewhere; ``keep`` are paths below the folder that are
    packed whatever the patterns say. Raises ``BundleRefused`` that names the file and what to do.
    """
    import zstandard

    limits = limits or Limits()
    extra, keep = list(extra), frozenset(keep)
    found = look(folder, extra=extra, keep=keep, limits=limits)
    hashed = hashlib.sha256()
    try:
        with out.open("wb") as file:
            compressor = zstandard.ZstdCompressor(level=LEVEL).compressobj()

            def write(data: bytes, *, last: bool = False) -> None:
                packed = compressor.compress(data) + (compressor.flush() if last else b"")
                hashed.update(packed)
                file.write(packed)

            for each in found:
                _write(write, each)
            write(archive.END, last=True)
    except OSError as error:
        raise BundleRefused(f"{error.filename or out}: {error.strerror}.") from error
    before = {(each.entry, each.mark) for each in found}
    for each in look(folder, extra=extra, keep=keep, limits=limits):
        if (each.entry, each.mark) not in before:
            raise BundleRefused(f"{each.source} changed while it was packed.", fix=_AGAIN)
        before.remove((each.entry, each.mark))
    for entry, _ in before:
        raise BundleRefused(f"{entry.path} went away while it was packed.", fix=_AGAIN)
    size, unpacked = out.stat().st_size, sum(each.entry.size for each in found)
    if unpacked > limits.unpacked_bytes(size):
        largest = max(found, key=lambda each: each.entry.size).source
        raise BundleRefused(
            f"{folder} has {unpacked // archive.MIB:,} MiB that pack to nearly nothing: hosts take no bundle that"
            f" unpacks to more than {limits.ratio} times its size.",
            fix=f"Leave files out that hold mostly zeros, with .holdfastignore; the largest is {largest}.",
        )
    return Bundle(out, hashed.hexdigest(), size, len(found), unpacked)


def look(
    folder: Path, *, extra: Iterable[tuple[str, Path]] = (), keep: Iterable[str] = (), limits: Limits | None = None
) -> list[Found]:
    """Entries that would be packed, parents first and sorted. Raises ``BundleRefused``."""
    limits, kept = limits or Limits(), frozenset(keep)
    rules = ignore.read(_patterns(folder))
    found: list[Found] = []
    total = 0
    for each in _all(folder, extra, rules, kept):
        found.append(each)
        total += each.entry.size
        if len(found) > limits.files:
            raise BundleRefused(
                f"{folder} has more than {limits.files:,} files to pack.",
                fix="Leave data out with .holdfastignore; it belongs on storage that hosts share.",
            )
        if total > limits.bytes:
            raise BundleRefused(
                f"{folder} has more than {limits.bytes // archive.MIB:,} MiB to pack.",
                fix="Leave data out with .holdfastignore; it belongs on storage that hosts share.",
            )
    return found


def _patterns(folder: Path) -> list[str]:
    for name in ignore.FILES:
        try:
            return (folder / name).read_text("utf-8-sig").splitlines()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise BundleRefused(f"{folder / name} can't be read: {error}.") from error
    return []


def _all(
    folder: Path, extra: Iterable[tuple[str, Path]], rules: ignore.Ignore, kept: frozenset[str]
) -> Iterator[Found]:
    packed: set[str] = set()
    for each in _walk(folder, "", rules, kept):
        packed.add(each.entry.path)
        yield each
    everything = ignore.read(())
    for path, source in extra:
        parts = path.split("/")
        for at in range(1, len(parts)):
            parent = "/".join(parts[:at])
            if parent not in packed:
                packed.add(parent)
                yield Found(source, Entry(parent, Kind.DIRECTORY), ())
        if path in packed:
            raise BundleRefused(f"{path} is in the bundle twice.", fix=f"Rename {source}.")
        packed.add(path)
        one = _found(source, path)
        yield one
        if one.entry.kind is Kind.DIRECTORY:
            yield from _walk(source, path + "/", everything, frozenset())


def _walk(folder: Path, prefix: str, rules: ignore.Ignore, kept: frozenset[str]) -> Iterator[Found]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise BundleRefused(f"{folder} can't be read: {error.strerror}.") from error
    for name in names:
        path, source = prefix + name, folder / name
        is_directory = os.path.isdir(source) and not os.path.islink(source)
        below = path + "/"
        wanted = path in kept or any(path.startswith(other + "/") or other.startswith(below) for other in kept)
        if not wanted and rules.leaves_out(path, is_directory=is_directory):
            continue
        yield _found(source, path)
        if is_directory:
            yield from _walk(source, below, rules, kept)


def _found(source: Path, path: str) -> Found:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise BundleRefused(f"{archive.shown(path)} has a name that is not UTF-8.", fix=_LEAVE_OUT) from None
    try:
        archive.check_path(path)
        status = source.lstat()
        mark = (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            # Its time changes with what is left out of it, too.
            return Found(source, Entry(path, Kind.DIRECTORY), ())
        if stat.S_ISREG(status.st_mode):
            return Found(source, Entry(path, Kind.FILE, status.st_size, bool(status.st_mode & 0o111)), mark)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(source)
            archive.check_target(path, target)
            try:
                target.encode()
            except UnicodeEncodeError:
                raise BundleRefused(f"{archive.shown(path)} is a link to a name that is not UTF-8.") from None
            return Found(source, Entry(path, Kind.LINK, target=target), mark)
    except OSError as error:
        raise BundleRefused(f"{source} can't be read: {error.strerror}.") from error
    except BundleRefused as refused:
        raise BundleRefused(refused.message, fix=_LEAVE_OUT) from None
    raise BundleRefused(f"{source} is neither a file, nor a directory, nor a symbolic link.", fix=_LEAVE_OUT)


def _write(write: Callable[[bytes], None], found: Found) -> None:
    write(archive.header(found.entry))
    if found.entry.kind is not Kind.FILE:
        return
    try:
        handle = os.open(found.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BundleRefused(f"{found.source} can't be read: {error.strerror}.") from error
    with open(handle, "rb", buffering=0) as file:
        rest = found.entry.size
        while rest and (data := file.read(min(CHUNK_BYTES, rest))):
            write(data)
            rest -= len(data)
        status = os.fstat(handle)
        if rest or (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode) != found.mark:
            raise BundleRefused(f"{found.source} changed while it was packed.", fix=_AGAIN)
    write(archive.padding(found.entry.size))
