"""``holdfast-controller backup FILE``: everything that a controller needs to go on elsewhere, in one file."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import gzip
import hashlib
import io
import json
import os
import resource
import sqlite3
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from holdfast._base import config
from holdfast._base.dataclass import dataclass
from holdfast._base.version import __version__
from holdfast._daemon.instance_lock import only_one
from holdfast._security.pki import NEXT_KEY
from holdfast.bundles import is_digest
from holdfast.errors import ConfigError, StoreError, WrongState
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.admin_socket import ask_for_copy
from holdfast_controller.shell.backup.places import NEWEST, replacing
from holdfast_controller.shell.backup.sealed_stream import Sealer, new_salt
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.store.high_water import quick_check
from holdfast_controller.shell.store.store import store_at

MAGIC = b"holdfast-backup\n"


@command
def main(argv: Sequence[str]) -> int:
    """0 when the file is written, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller backup",
        description="Back the controller up, while it runs or not: its log, its settings, its CA, packaged code.",
    )
    parser.add_argument("file", metavar="FILE", help="or s3://BUCKET/FILE; is replaced once the backup is complete")
    add_settings(parser)
    secret = parser.add_mutually_exclusive_group()
    secret.add_argument("--passphrase-file", type=Path, metavar="FILE", help="instead of asking for one")
    secret.add_argument("--without-keys", action="store_true", help="leave the CA's key out, and encrypt nothing")
    parser.add_argument("--without-bundles", action="store_true", help="leave packaged code out")
    options = parser.parse_args(argv)
    passphrase = None if options.without_keys else new_passphrase(options.passphrase_file)
    made, size = back_up(options.config, options.file, passphrase, bundles=not options.without_bundles)
    what = "with its keys, under the passphrase" if made.keys else "without the CA's key, not encrypted"
    print(f"{options.file}: the cluster {made.cluster}, {size / (1 << 20):.1f} MiB, {what}.")  # noqa: T201
    return 0


def new_passphrase(file: Path | None) -> str:
    """From a file, or typed twice. Raises ``ConfigError``."""
    if file is not None:
        return read_passphrase(file)
    if not sys.stdin.isatty():
        fix = "Write --passphrase-file FILE, or --without-keys."
        raise ConfigError("The CA's key needs a passphrase, and there is no terminal to ask for one.", fix=fix)
    typed = getpass.getpass("Passphrase for the backup: ")
    if not typed or getpass.getpass("Again: ") != typed:
        raise ConfigError("No passphrase was typed twice alike.", fix="Try again.")
    return typed


def read_passphrase(file: Path) -> str:
    """The first line of a file. Raises ``ConfigError``."""
    try:
        found = file.read_text().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {file}: {error}.") from error
    if not found:
        raise ConfigError(f"The first line of {file} is empty.", fix="Write the passphrase there.")
    return found


@dataclass(frozen=True)
class _Source:
    """A file as it was when it was opened: it may be replaced, removed or appended to since."""

    member: mf.Member
    file: IO[bytes]


def back_up(
    settings_file: Path, target: Path | str, passphrase: str | None, *, bundles: bool = True
) -> tuple[mf.Manifest, int]:
    """Write the backup, complete or not at all; without a passphrase no key is in it. Blocks.

    Returns what is in it, and its size in bytes. Raises ``HoldfastError``.
    """
    settings = config.load(ControllerConfig, settings_file)
    _allow_many_files()
    with (
        _copied(settings) as (copy, epoch, sequence),
        replacing(target, settings.state_dir) as file,
        contextlib.ExitStack() as opened,
    ):
        with contextlib.closing(sqlite3.connect(copy)) as database:
            quick_check(database, settings.database)
        if passphrase is None:
            _forget_secret(copy)
        sources = []
        for source in _sources(settings, settings_file, copy, keys=passphrase is not None, bundles=bundles):
            opened.callback(source.file.close)
            sources.append(source)
        ca_directory = settings.ca_directory
        made = mf.Manifest(
            version=__version__,
            schema=_schema(copy),
            cluster=settings.cluster,
            taken_at=time.time(),
            epoch=epoch,
            sequence=sequence,
            keys=passphrase is not None,
            bundles=bundles,
            layout=mf.Layout(
                settings=settings_file.absolute(),
                state_dir=settings.state_dir.absolute(),
                ca=settings.ca.absolute(),
                cert=settings.cert.absolute(),
                key=settings.key.absolute(),
                ca_directory=None if ca_directory is None else ca_directory.absolute(),
            ),
            members=tuple(source.member for source in sources),
        )
        _write(file, made, sources, passphrase)
        size = file.tell()
    with contextlib.suppress(OSError):  # the backup is complete all the same
        (settings.state_dir / NEWEST).touch()
    return made, size


def _write(file: IO[bytes], made: mf.Manifest, sources: list[_Source], passphrase: str | None) -> None:
    salt = b"" if passphrase is None else new_salt()
    file.write(MAGIC + json.dumps({"salt": salt.hex()}).encode() + b"\n")
    with contextlib.ExitStack() as stack:
        out: IO[bytes] = file
        if passphrase is not None:
            sealer = Sealer(file, passphrase, salt)
            stack.callback(sealer.close)
            out = cast("IO[bytes]", sealer)
        # Without a name of its own: no checksum covers what is in the head.
        packed = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=1, fileobj=out))
        tar = stack.enter_context(tarfile.open(mode="w|", fileobj=packed))
        content = made.dump()
        _add(tar, mf.NAME, len(content), io.BytesIO(content))
        for source in sources:
            source.file.seek(0)
            read = _Hashing(source.file)
            try:
                _add(tar, source.member.name, source.member.size, cast("IO[bytes]", read))
            except OSError as error:
                if os.fstat(source.file.fileno()).st_size < source.member.size:
                    raise StoreError(f"{source.file.name} was cut meanwhile.", fix="Try again.") from error
                raise
            if read.digest.hexdigest() != source.member.sha256:
                raise StoreError(f"{source.file.name} was changed meanwhile.", fix="Try again.")


class _Hashing:
    """Reads a file, and says what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece = self._file.read(size)
        self.digest.update(piece)
        return piece


def _add(tar: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    tar.addfile(entry, content)


def _sources(
    settings: ControllerConfig, settings_file: Path, copy: Path, *, keys: bool, bundles: bool
) -> Iterator[_Source]:
    yield _source(mf.STORE, copy)
    yield _source(mf.SETTINGS, settings_file)
    if settings.ca_directory is not None:
        for path in sorted(settings.ca_directory.iterdir()):
            if path.name == "ca.pem" or (keys and path.name in ("ca.key", NEXT_KEY)):
                yield _source(f"{mf.CA}{path.name}", path)
    else:
        yield _source(f"{mf.OWN}ca.pem", settings.ca)
        if keys:
            yield _source(f"{mf.OWN}cert.pem", settings.cert)
            yield _source(f"{mf.OWN}key.key", settings.key)
    if keys and settings.secrets_key.exists():
        yield _source(mf.SECRETS_KEY, settings.secrets_key)
    for path, file in _audit_files(settings.state_dir).items():
        yield _summed(f"{mf.AUDIT}{path.name}", file)
    for path in sorted((settings.state_dir / "bundles").glob("*")) if bundles else ():
        if is_digest(path.name) and (kept := _opened(path)) is not None:  # else no one needs it any more
            yield _summed(f"{mf.BUNDLES}{path.name}", kept)


def _audit_files(state_dir: Path) -> dict[Path, IO[bytes]]:
    """The audit log's files, all open, none of which was renamed while the others were opened."""
    while True:
        found = {path: _opened(path) for path in sorted(state_dir.glob("audit*.jsonl"))}
        opened = {path: file for path, file in found.items() if file is not None}
        with contextlib.suppress(FileNotFoundError):
            same = (os.path.samestat(path.stat(), os.fstat(file.fileno())) for path, file in opened.items())
            if len(opened) == len(found) and all(same):
                return opened
        for file in opened.values():
            file.close()


def _opened(path: Path) -> IO[bytes] | None:
    """None where it is gone. Raises ``StoreError``, which is not to be taken for one of the backup's own file."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror}.") from error


def _source(name: str, path: Path) -> _Source:
    if (file := _opened(path)) is None:
        raise StoreError(f"Cannot read {path}: there is no such file.")
    return _summed(name, file)


def _summed(name: str, file: IO[bytes]) -> _Source:
    """The file as it is now; what is appended to it later is no part of the backup. Raises ``StoreError``."""
    digest, size = hashlib.sha256(), 0
    try:
        left = os.fstat(file.fileno()).st_size
        while left and (piece := file.read(min(left, 1 << 20))):
            digest.update(piece)
            size, left = size + len(piece), left - len(piece)
    except OSError as error:
        raise StoreError(f"Cannot read {file.name}: {error.strerror}.") from error
    return _Source(mf.Member(name, size, digest.hexdigest()), file)


def _allow_many_files() -> None:
    """All are open at once."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def _copied(settings: ControllerConfig) -> Iterator[tuple[Path, int, int]]:
    """A copy of the store for as long as the block runs, with its epoch and the number of its last event."""
    if not settings.database_url and not settings.database.exists():
        raise StoreError(f"There is no store {settings.database}.", fix="Name the right --config.")
    found = ask_for_copy(settings.state_dir)
    copy: Path | None = None
    try:
        if found is not None:
            copy, epoch, sequence = found
        else:
            copy = settings.state_dir / f".copy-{os.urandom(8).hex()}.db"
            epoch, sequence = _copy_at_rest(settings, copy)
        yield copy, epoch, sequence
    finally:
        if copy is not None:
            copy.unlink(missing_ok=True)


def _copy_at_rest(settings: ControllerConfig, copy: Path) -> tuple[int, int]:
    try:
        with only_one(settings.state_dir, "controller", wait_s=0.0):
            if settings.database_url:
                return store_at(settings.database, settings.database_url).copy_at_rest(copy)
            os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with (
                contextlib.closing(sqlite3.connect(settings.database)) as store,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                store.backup(target)
                epoch = store.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
                sequence = store.execute("SELECT max(sequence) FROM events").fetchone()
                return int(epoch[0] if epoch else 0), int(sequence[0] or 0)
    except WrongState as error:
        fix = "It is about to start or to end, or is older than this command: try again, or stop it."
        if settings.database_url:
            fix = "Make the backup on the machine whose controller leads (holdfast status), or try again."
        raise WrongState("A controller runs there, and makes no copies.", fix=fix) from error
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"The store {settings.database} can't be copied: {error}.") from error


def _forget_secret(copy: Path) -> None:
    """The key from which rendezvous secrets are derived; a controller without one makes one."""
    with contextlib.closing(sqlite3.connect(copy)) as database, database:
        database.execute("PRAGMA secure_delete=ON")
        database.execute("DELETE FROM meta WHERE key = 'secret_key'")


def _schema(copy: Path) -> str:
    with contextlib.closing(sqlite3.connect(copy)) as database:
        found: tuple[str] = database.execute("SELECT version_num FROM alembic_version").fetchone()
        return found[0]
