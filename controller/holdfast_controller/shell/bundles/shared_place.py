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

from holdfast._base import extras
from holdfast._daemon import log
from holdfast.bundles import is_digest
from holdfast.errors import ConfigError, Unavailable

_FIX = 'Write shared = "s3://BUCKET/FOLDER", or "file:///FOLDER" for one that all controllers mount.'
_READ_BYTES = 4 << 20
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def checked(url: str) -> str:
    """``shared`` of ``[bundles]``. Raises ``ConfigError`` where it names no such place."""
    scheme, _, rest = url.partition("://")
    if url and (scheme not in ("s3", "file") or not rest.strip("/") or (scheme == "file" and rest[0] != "/")):
        raise ConfigError(f"bundles.shared is {url!r}, which is neither a bucket nor a folder.", fix=_FIX)
    return url


class SharedPlace:
    """One such place. Every method blocks, may be called from any thread, and raises ``Unavailable``."""

    def __init__(self, url: str) -> None:
        """Take what ``checked`` has passed; nothing is asked for yet. Raises ``ConfigError``, ``MissingPackages``.

        Where a bucket is, and whose keys are used, is in the AWS_ variables, as for every program that uses S3.
        """
        extras.require("[bundles] shared in controller.toml", "s3")
        from obstore.exceptions import BaseError
        from obstore.store import LocalStore, S3Store

        self._url = url
        self._folder = Path(url.removeprefix("file://")) if url.startswith("file://") else None
        self._failed = False
        self._one_at_a_time = threading.Lock()
        try:
            if self._folder is not None:
                self._store: LocalStore | S3Store = LocalStore(self._folder, mkdir=True)
            else:
                insecure = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
                self._store = S3Store.from_url(
                    url,
                    client_options={"timeout": "30s", "connect_timeout": "5s", "allow_http": insecure},
                    retry_config=_RETRIES,  # type: ignore[arg-type]
                )
        except (BaseError, OSError, ValueError) as error:
            raise ConfigError(f"bundles.shared: {url} can't be used: {_line(error)}.", fix=_FIX) from error

    def put(self, bundle: Path, digest: str, marks: Collection[str]) -> None:
        """Keep a complete bundle, and then who has sent it; done when this returns. ``bundle`` is its file here."""
        import obstore

        with self._asked():
            if self._size_of(digest) != bundle.stat().st_size:
                obstore.put(self._store, digest, bundle)
                if self._folder is not None:
                    _sync(self._folder / digest)
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

        try:
            yield
        except (BaseError, OSError) as error:
            if not self._failed:
                log.warning("bundles.shared_unreachable", shared=self._url, error=_line(error))
            self._failed = True
            raise Unavailable(
                f"{self._url}, where packaged code is kept, can't be used: {_line(error)}.",
                fix="Try again; the controller's admin sees whether it runs and lets the controller in.",
            ) from error
        self._failed = False


def _sync(file: Path) -> None:
    for path in (file, file.parent):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")[:300]
