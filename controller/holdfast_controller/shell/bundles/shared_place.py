"""A place for packaged code that all controllers of a cluster reach: a bucket of S3, or a folder that they mount.

Bundles are named after the hash of their bytes there as they are beside the controller, and ``owners/`` has an empty
object for each user who has sent one. A machine that is lost takes none of it along.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._base import extras
from holdfast._base.durable import sync
from holdfast._daemon import log
from holdfast.bundles import is_digest
from holdfast.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

_FIX = 'Write shared = "s3://BUCKET/FOLDER", or "file:///FOLDER" for one that all controllers mount.'
_READ_BYTES = 4 << 20
_MARK = "holdfast-place"
"""A file in a shared folder, by whose content it is known again."""
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def checked(url: str) -> str:
    """``shared`` of ``[bundles]``. Raises ``ConfigError`` where it names no such place."""
    scheme, _, rest = url.partition("://")
    if url and (scheme not in ("s3", "file") or not rest.strip("/") or (scheme == "file" and rest[0] != "/")):
        raise ConfigError(f"bundles.shared is {url!r}, which is neither a bucket nor a folder.", fix=_FIX)
    return url


class SharedPlace:
    """One such place. Every method blocks, may be called from any thread, and raises ``Unavailable``."""

    def __init__(self, url: str, note: Path | None = None) -> None:
        """Take what ``checked`` has passed; nothing is asked for yet. Raises ``ConfigError``, ``MissingPackages``.

        Where a bucket is, and whose keys are used, is in the AWS_ variables, as for every program that uses S3.
        ``note`` is a file here that tells a folder which was used before from what is there while its mount is missing.
        """
        extras.require("[bundles] shared in controller.toml", "s3")
        self._url, self._note = url, note
        self._folder = Path(url.removeprefix("file://")) if url.startswith("file://") else None
        self._failed = False
        self._one_at_a_time = threading.Lock()
        self._store: LocalStore | S3Store
        if self._folder is None:
            self._store = bucket(url, "bundles.shared")

    def check(self) -> None:
        """Write to it, and read that again. Raises ``Unavailable``."""
        import obstore

        name = f"checked/{os.urandom(8).hex()}"
        with self._asked():
            obstore.put(self._store, name, b"")
            obstore.head(self._store, name)
            obstore.delete(self._store, name)

    def put(self, bundle: Path, digest: str, marks: Collection[str]) -> None:
        """Keep a complete bundle, and then who has sent it; done when this returns. ``bundle`` is its file here."""
        import obstore

        with self._asked():
            if self._size_of(digest) != bundle.stat().st_size:
                obstore.put(self._store, digest, bundle)
                if self._folder is not None:
                    sync(self._folder / digest)
            for mark in marks:
                obstore.put(self._store, f"owners/{mark}", b"")

    def has_mark(self, mark: str) -> bool:
        """Whether a user has sent a bundle, by ``HASH.OWNER``."""
        with self._asked():
            return self._size_of(f"owners/{mark}") is not None

    def fetch(self, digest: str, part: Path, most: int) -> bool:
        """Write a bundle to a new file; False where none of at most so many bytes is there. They are not checked."""
        import obstore
        from obstore.exceptions import NotFoundError

        with self._one_at_a_time, self._asked():
            try:
                found = obstore.get(self._store, digest)
            except (NotFoundError, FileNotFoundError):
                return False
            if found.meta["size"] > most:
                log.warning("bundles.shared_too_large", digest=digest, bytes=found.meta["size"])
                return False
            with part.open("wb") as file:
                for chunk in found.stream(min_chunk_size=_READ_BYTES):
                    file.write(memoryview(chunk))
        return True

    def stored(self) -> dict[str, float]:
        """When each bundle was put there, by hash, wall clock of the place."""
        import obstore

        with self._asked():
            found = obstore.list(self._store).collect()
        return {each["path"]: each["last_modified"].timestamp() for each in found if is_digest(each["path"])}

    def remove(self, digest: str) -> None:
        """Remove a bundle, after the marks of who has sent it."""
        import obstore

        with self._asked():
            marks = obstore.list(self._store, "owners").collect()
            ours = [each["path"] for each in marks if each["path"].startswith(f"owners/{digest}.")]
            obstore.delete(self._store, [*ours, digest])

    def _size_of(self, name: str) -> int | None:
        import obstore
        from obstore.exceptions import NotFoundError

        try:
            return obstore.head(self._store, name)["size"]
        except (NotFoundError, FileNotFoundError):
            return None

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Around what asks the place: its failures are ours to tell, and noted once until it answers again."""
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore

        try:
            if self._folder is not None:
                self._check_mount(self._folder)
                self._store = LocalStore(self._folder)
            yield
        except (BaseError, OSError) as error:
            if not self._failed:
                log.warning("bundles.shared_unreachable", shared=self._url, error=first_line(error))
            self._failed = True
            raise Unavailable(
                f"{self._url}, where packaged code is kept, can't be used: {first_line(error)}.",
                fix="Try again; the controller's admin sees whether it runs and lets the controller in.",
            ) from error
        self._failed = False

    def _check_mount(self, folder: Path) -> None:
        """Raises ``OSError`` where it isn't what was there before: code would be put on this machine's own disk."""
        if not folder.is_dir():
            raise OSError(f"{folder} is not there: make it, or mount what belongs there")
        if self._note is None:
            return
        noted, mark = _read(self._note), folder / _MARK
        if noted and _read(mark) != noted:
            raise OSError(f"{folder} is not what was used before: its mount is missing (else remove {self._note})")
        if not noted:
            fresh = folder / f".{os.urandom(8).hex()}"
            try:
                fresh.write_text(os.urandom(16).hex())
                with contextlib.suppress(FileExistsError):
                    os.link(fresh, mark)  # whichever controller comes first
            finally:
                fresh.unlink(missing_ok=True)
            self._note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._note.write_text(_read(mark))


def bucket(url: str, key: str) -> S3Store:
    """The bucket and folder that a URL leads to; nothing is asked for yet. Raises ``ConfigError`` naming ``key``."""
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    insecure = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        return S3Store.from_url(
            url,
            client_options={"timeout": "30s", "connect_timeout": "5s", "allow_http": insecure},
            retry_config=_RETRIES,  # type: ignore[arg-type]
        )
    except (BaseError, ValueError) as error:
        raise ConfigError(f"{key}: {url} can't be used: {first_line(error)}.", fix=_FIX) from error


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def first_line(error: Exception) -> str:
    """The complaint of such a place, in short."""
    return str(error).strip().partition("\n")[0].rstrip(".")[:300]
