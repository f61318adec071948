"""Places of a backup: a file, or an object in a bucket of S3. Either is there whole, or not at all.

What goes to a bucket is written beside the controller first, and sent once it is complete: an object gets its name when
its last byte has come. What comes from one is fetched to a file without a name.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from holdfast._base import extras
from holdfast._base.durable import sync
from holdfast.errors import ConfigError, StoreError, Unavailable
from holdfast_controller.shell.bundles.shared_place import bucket, first_line

NEWEST = "last_backup"
"""A file in the state directory whose time is that of the newest backup."""
_BUCKET = "s3://"
_FIX = "Name it as s3://BUCKET/FOLDER/FILE, and its server and keys in the AWS_ variables."
_READ_BYTES = 4 << 20


def newest_backup(state_dir: Path) -> float:
    """When the newest backup of a controller was complete, wall clock; 0 where none was made on its machine."""
    try:
        return (state_dir / NEWEST).stat().st_mtime
    except OSError:
        return 0.0


@contextlib.contextmanager
def replacing(place: Path | str, beside: Path) -> Iterator[IO[bytes]]:
    """A file that is at its place, and durable, only once the block has ended; readable by its owner only.

    ``beside`` is a folder for what is on its way to a bucket. Raises ``StoreError``, ``ConfigError``.
    """
    if not str(place).startswith(_BUCKET):
        with _file(Path(place)) as file:
            yield file
        return
    folder, name = _parts(str(place))
    import obstore
    from obstore.exceptions import BaseError

    store = bucket(folder, "The place of the backup")
    try:
        with tempfile.NamedTemporaryFile(dir=beside, prefix=".backup-") as file:
            yield file
            file.flush()
            try:
                obstore.put(store, name, Path(file.name))
            except (BaseError, OSError) as error:
                raise Unavailable(f"Cannot write {place}: {first_line(error)}.", fix=_FIX) from error
    except OSError as error:
        raise StoreError(f"Cannot write to {beside}: {error.strerror}.", fix="Make room there.") from error


@contextlib.contextmanager
def reading(place: Path | str) -> Iterator[IO[bytes]]:
    """A backup from its place. Raises ``ConfigError``."""
    if not str(place).startswith(_BUCKET):
        with contextlib.ExitStack() as stack:
            try:
                raw = stack.enter_context(Path(place).open("rb"))
            except OSError as error:
                raise ConfigError(f"Cannot read {place}: {error.strerror}.") from error
            yield raw
        return
    folder, name = _parts(str(place))
    import obstore
    from obstore.exceptions import BaseError

    store = bucket(folder, "The place of the backup")
    with tempfile.TemporaryFile() as fetched:
        try:
            for chunk in obstore.get(store, name).stream(min_chunk_size=_READ_BYTES):
                fetched.write(memoryview(chunk))
        except (BaseError, OSError) as error:
            raise ConfigError(f"Cannot read {place}: {first_line(error)}.", fix=_FIX) from error
        fetched.seek(0)
        yield fetched


def _parts(place: str) -> tuple[str, str]:
    """The folder and the name of an object. Raises ``ConfigError``, ``MissingPackages``."""
    folder, _, name = place.removeprefix(_BUCKET).rpartition("/")
    if not name or not folder.strip("/"):
        raise ConfigError(f"{place} names no object in a bucket.", fix=_FIX)
    extras.require("A backup in a bucket", "s3")
    return f"{_BUCKET}{folder}", name


@contextlib.contextmanager
def _file(target: Path) -> Iterator[IO[bytes]]:
    """Its folder is made where it isn't there, for its owner only; those above it aren't."""
    if not target.name or target.is_dir():
        raise StoreError(f"{target} is a folder.", fix="Name a file in it.")
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.absolute().parent.mkdir(0o700, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(target)
            sync(target.absolute().parent)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {error.strerror}.", fix="Name another place.") from error
