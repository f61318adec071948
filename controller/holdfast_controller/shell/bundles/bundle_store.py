"""Packaged code as the controller keeps it: files named after the hash of their bytes, beside its database.

A bundle is complete and right from the moment that it has its name; before that it is a part under ``incoming``,
one for each user, which may be gone on with after whatever interrupted it. What no job needs any more goes when it
was not asked for during ``keep``, or earlier where room is needed, the longest unused first. The time of the last
use is the file's own. All methods block, and may be called from several threads.

The owners of a bundle, under ``owners``, are all users who have sent all its bytes. Knowing its hash, which
every user who may look at the job can read, is not enough to have its code run.

With a ``SharedPlace`` these files are a cache: an upload is acknowledged once it is there too, and what is missing here
is fetched from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from holdfast._base.dataclass import dataclass
from holdfast._base.durable import sync
from holdfast._daemon import log
from holdfast.bundles import is_digest
from holdfast.errors import BundleRefused, InvalidInput, NotFound, StorageFull, Unavailable, Violation
from holdfast_controller.shell.bundles import shared_place
from holdfast_controller.shell.bundles.shared_place import SharedPlace

MIB = 1 << 20
UNUSED_GRACE_S = 600.0
"""A bundle that was just uploaded or named in a job is left alone: its job may be about to be created."""
OF_ONE_USER = 0.75
"""Of the room, by size and by number: so much one user's bundles take at most, those that jobs need included."""
_READ_BYTES = 4 * MIB


@dataclass(frozen=True)
class BundleConfig:
    """Keys of ``[bundles]`` in controller.toml: how much packaged code is kept."""

    limit_mb: int = 512
    """MiB of one bundle, packed."""
    store_mb: int = 10_240
    """MiB of all of them."""
    store_count: int = 2_000
    """How many are kept at most."""
    keep: float = 86_400.0
    """Seconds that a bundle which no unfinished job needs is kept after its last use."""
    shared: str = ""
    """Where all controllers keep bundles: "s3://BUCKET/FOLDER", or "file:///FOLDER" that all of them mount."""

    def __post_init__(self) -> None:
        """Check what can be checked without asking anyone. Raises ``ConfigError``."""
        shared_place.checked(self.shared)


class BundleStore:
    """All bundles in ``directory``. ``clock`` gives wall-clock seconds."""

    def __init__(self, directory: Path, config: BundleConfig, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._incoming, self._owners = directory, directory / "incoming", directory / "owners"
        self._config, self._clock = config, clock
        self._shared = SharedPlace(config.shared, directory / "shared-place") if config.shared else None
        self._elsewhere: set[str] = set()
        """Bundles that are known to be in the shared place."""
        self._lock = threading.Lock()
        self._turns: dict[Path, Upload] = {}
        """By part: the upload that may write to it. A newer one takes over from one whose link has broken."""

    def path(self, digest: str) -> Path:
        """A complete bundle's file. Raises ``NotFound``, ``Unavailable``."""
        if not is_digest(digest):
            raise _unknown(digest)
        found = self._directory / digest
        if not found.is_file() and not self._fetched(digest):
            raise _unknown(digest)
        return found

    def _fetched(self, digest: str) -> bool:
        """Whether a bundle that isn't here was found in the shared place, and is here now."""
        if self._shared is None:
            return False
        self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._incoming / f"{digest}.fetched-{os.urandom(8).hex()}"
        try:
            if not self._shared.fetch(digest, part, self._config.limit_mb * MIB):
                return False
            with part.open("rb") as file:
                right = hashlib.file_digest(file, "sha256").hexdigest() == digest
            if not right:
                log.warning("bundles.shared_corrupt", digest=digest)
                return False
            with self._lock:
                self._elsewhere.add(digest)
                self._leave_room(part)
                part.replace(self._directory / digest)
        finally:
            part.unlink(missing_ok=True)
        return True

    def _leave_room(self, part: Path) -> None:
        """Make it for what was fetched: of what is in the shared place too the longest unused goes from here."""
        stored = sorted(self._stored(), key=lambda entry: entry[1])
        total, count = sum(held for _, _, held in stored) + part.stat().st_size, len(stored) + 1
        for path, last_use, held in stored:
            if total <= self._config.store_mb * MIB and count <= self._config.store_count:
                return
            if path.name in self._elsewhere and last_use < self._clock() - UNUSED_GRACE_S:
                path.unlink(missing_ok=True)
                total, count = total - held, count - 1

    def use(self, digest: str, owner: str) -> None:
        """Note that a bundle is asked for now. Raises ``NotFound``, also where ``owner`` has not sent it.

        Raises ``Unavailable`` where the shared place would have to be asked.
        """
        if not is_digest(digest):
            raise _unknown(digest)
        mark = self._mark(digest, owner)
        if not mark.exists():
            if self._shared is None or not self._shared.has_mark(mark.name):
                raise _unknown(digest)
            self._owners.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path(digest)
            mark.touch(mode=0o600)
        else:
            found = self.path(digest)
        try:
            os.utime(found, (self._clock(), self._clock()))
        except FileNotFoundError:  # its time was over in this very moment
            raise _unknown(digest) from None

    def progress_of(self, digest: str, owner: str) -> tuple[bool, int]:
        """(Whether this owner has sent the whole bundle, bytes received of an unfinished upload). Raises
        ``InvalidInput``."""
        _check(digest)
        with contextlib.suppress(NotFound):
            self.use(digest, owner)
            return True, 0
        with contextlib.suppress(FileNotFoundError):
            return False, self._part(digest, owner).stat().st_size
        return False, 0

    def begin(self, digest: str, size: int, offset: int, owner: str, in_use: Collection[str]) -> Upload:
        """Take up an upload where it stands. ``in_use`` are the bundles of jobs that have not ended.

        Raises ``InvalidInput`` where the offset is not where it stands, ``StorageFull`` where there is no room.
        """
        _check(digest)
        most = self._config.limit_mb * MIB
        if not 1 <= size <= most:
            raise StorageFull(
                f"The code has {size / MIB:,.1f} MiB packed; the cluster takes at most {self._config.limit_mb:,}.",
                fix="Leave data out with .holdfastignore, or have [bundles] limit_mb in controller.toml raised.",
            )
        part = self._part(digest, owner)
        with _storing(), self._lock:
            self._incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
            there = part.stat().st_size if part.exists() else 0
            if offset not in (0, there):
                problem = f"{offset} is not where the upload stands"
                raise InvalidInput([Violation("offset", problem, f"go on from {there}")])
            self._keep_to_share(digest, size, owner, in_use)
            self._make_room(size, part, in_use)
            upload = self._turns[part] = Upload(
                self, part, self._directory / digest, self._mark(digest, owner), size, offset
            )
        return upload

    def collect(self, in_use: Collection[str]) -> None:
        """Remove bundles that have not been used for long; what is here alone gets into the shared place.

        Raises ``Unavailable``.
        """
        with self._lock:
            self._collect(frozenset(in_use))
        if self._shared is None:
            return
        here, there = {path.name: path for path, _, _ in self._stored()}, self._shared.stored()
        for digest in here.keys() - there.keys():
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                self._shared.put(here[digest], digest, [mark.name for mark in self._owners.glob(f"{digest}.*")])
        self._elsewhere = here.keys() | there.keys()
        old = self._clock() - max(self._config.keep, UNUSED_GRACE_S)
        for digest, put_at in there.items():
            if put_at < old and digest not in here and digest not in in_use:
                self._shared.remove(digest)

    def _keep_to_share(self, digest: str, size: int, owner: str, in_use: Collection[str]) -> None:
        """Leave room to other users: the user's own longest unused bundles give way. Raises ``StorageFull``."""
        most, most_count = OF_ONE_USER * self._config.store_mb * MIB, OF_ONE_USER * self._config.store_count
        mine = sorted(
            (use, held, path, mark)
            for path, use, held in self._stored()
            if path.name != digest and (mark := self._mark(path.name, owner)).exists()
        )
        others = {path.name: path.stat().st_size for path in self._incoming.glob(_of("*", owner))}
        others |= {path.name: upload.size for path, upload in self._turns.items() if path.name in others}
        others.pop(_of(digest, owner), None)
        total, count = sum(entry[1] for entry in mine) + sum(others.values()) + size, len(mine) + len(others) + 1
        for last_use, held, path, mark in mine:
            if total <= most and count <= most_count:
                return
            if path.name not in in_use and last_use < self._clock() - UNUSED_GRACE_S:
                mark.unlink(missing_ok=True)
                if not any(self._owners.glob(f"{path.name}.*")):
                    self._remove(path)
                total, count = total - held, count - 1
        if total > most or count > most_count:
            raise StorageFull(
                f"{owner} has {len(mine)} bundles with {sum(entry[1] for entry in mine) / MIB:,.0f} MiB here, and one "
                f"user's may take {OF_ONE_USER:.0%} of the room.",
                fix="Try again when some of your jobs have ended, or have [bundles] store_mb and store_count in "
                "controller.toml raised.",
            )

    def _make_room(self, size: int, part: Path, in_use: Collection[str]) -> None:
        self._collect(frozenset(in_use))
        stored = sorted(self._stored(), key=lambda entry: entry[1])
        promised = [upload.size for other, upload in self._turns.items() if other != part]
        parts = sum(held for p, _, held in _looked_at(self._incoming) if p != part and p not in self._turns)
        total, count = sum(entry[2] for entry in stored) + parts + sum(promised) + size, len(stored) + 1
        for path, last_use, held in stored:
            if total <= self._config.store_mb * MIB and count <= self._config.store_count:
                return
            if path.name not in in_use and last_use < self._clock() - UNUSED_GRACE_S:
                self._remove(path)
                total, count = total - held, count - 1
        if total > self._config.store_mb * MIB or count > self._config.store_count:
            held_mib = sum(held for _, _, held in stored) / MIB
            raise StorageFull(
                f"The controller keeps {len(stored)} bundles with {held_mib:,.0f} MiB and has "
                "no room for another; those of jobs that have not ended stay.",
                fix="Try again when some have ended, or have [bundles] store_mb and store_count in controller.toml "
                "raised.",
            )

    def _collect(self, in_use: frozenset[str]) -> None:
        old = self._clock() - max(self._config.keep, UNUSED_GRACE_S)
        for path, last_use, _ in list(self._stored()):
            if path.name not in in_use and last_use < old:
                self._remove(path)
        for part, written_at, _ in list(_looked_at(self._incoming)):
            if part not in self._turns and written_at < old:
                part.unlink(missing_ok=True)

    def _stored(self) -> Iterator[tuple[Path, float, int]]:
        """(file, last use, bytes) of each complete bundle."""
        return (found for found in _looked_at(self._directory) if is_digest(found[0].name))

    def _part(self, digest: str, owner: str) -> Path:
        # One user's broken part must not stand in the way of another's upload.
        return self._incoming / _of(digest, owner)

    def _mark(self, digest: str, owner: str) -> Path:
        return self._owners / _of(digest, owner)

    def _remove(self, bundle: Path) -> None:
        bundle.unlink(missing_ok=True)
        for mark in self._owners.glob(f"{bundle.name}.*"):
            mark.unlink(missing_ok=True)


class Upload:
    """One stream of chunks into one part. Made by ``BundleStore.begin``; ``end`` it in every case."""

    def __init__(self, store: BundleStore, part: Path, final: Path, mark: Path, size: int, offset: int) -> None:
        self._store, self._part, self._final, self._mark = store, part, final, mark
        self.size, self._at = size, offset
        self._busy = threading.Lock()
        """Held while the file is used, so that nothing closes it meanwhile."""
        self._handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.ftruncate(self._handle, offset)

    def write(self, chunk: bytes) -> None:
        """The next bytes. Raises ``BundleRefused`` beyond the size, ``StorageFull``, ``Unavailable``."""
        if self._at + len(chunk) > self.size:
            raise BundleRefused(f"More than the {self.size:,} bytes came that were announced.")
        with self._busy, self._store._lock:
            if self._store._turns.get(self._part) is not self:
                raise Unavailable("Another upload of the same bundle has taken over from this one.")
            rest = memoryview(chunk)
            with _storing():
                while rest:
                    written = os.pwrite(self._handle, rest, self._at)
                    self._at, rest = self._at + written, rest[written:]

    def finish(self) -> None:
        """Give it its name once the bytes are the right ones; durable then, in the shared place too.

        Raises ``BundleRefused``, ``StorageFull``, ``Unavailable``.
        """
        with self._busy, _storing():
            self._finish()

    def _finish(self) -> None:
        if self._at != self.size:
            raise BundleRefused(f"{self._at:,} of {self.size:,} bytes came.", fix="Send the rest.")
        hashed = hashlib.sha256()
        at = 0
        while data := os.pread(self._handle, _READ_BYTES, at):
            hashed.update(data)
            at += len(data)
        if hashed.hexdigest() != self._final.name:
            self._part.unlink(missing_ok=True)
            raise BundleRefused(
                "The bytes that came are not those of the bundle.", fix="Send it again from the start."
            )
        if self._store._shared is not None:
            self._store._shared.put(self._part, self._final.name, [self._mark.name])
            self._store._elsewhere.add(self._final.name)
        with self._store._lock:
            if self._store._turns.get(self._part) is not self:
                raise Unavailable("Another upload of the same bundle has taken over from this one.")
            os.fsync(self._handle)
            self._mark.parent.mkdir(mode=0o700, exist_ok=True)
            self._mark.touch(mode=0o600)
            os.replace(self._part, self._final)
            for directory in (self._mark.parent, self._final.parent):
                sync(directory)

    def end(self) -> None:
        """Whatever became of it: the next upload may have its turn."""
        with self._busy, self._store._lock:
            if self._store._turns.get(self._part) is self:
                del self._store._turns[self._part]
            os.close(self._handle)


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    """Raise ``StorageFull`` for what the disk refuses in the block."""
    try:
        yield
    except OSError as error:
        raise StorageFull(
            f"The controller can't store the bundle: {error.strerror}.", fix="Tell an admin, and try again."
        ) from error


def _looked_at(folder: Path) -> Iterator[tuple[Path, float, int]]:
    """(file, last use, bytes) of each file that is still there when it is looked at."""
    for path in folder.iterdir() if folder.exists() else ():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        yield path, status.st_mtime, status.st_size


def _of(digest: str, owner: str) -> str:
    return f"{digest}.{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def _unknown(digest: str) -> NotFound:
    return NotFound(f"There is no bundle {digest[:64]!r}.", fix="Submit the job from its folder again.")


def _check(digest: str) -> None:
    if not is_digest(digest):
        raise InvalidInput([Violation("digest", "is no SHA-256", "64 lower-case hexadecimal digits")])
