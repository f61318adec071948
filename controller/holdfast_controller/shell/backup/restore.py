"""``holdfast-controller restore FILE``: restores a controller from a backup, where there is none.

Everything is unpacked and checked beside its place first, the log is gone on from beyond every number that the lost
controller can have given out, and only then does anything get its name; the settings last.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import getpass
import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
import time
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import sqlalchemy as sa

from holdfast._base.identity import Identity, Kind
from holdfast._daemon.instance_lock import only_one
from holdfast._security import pki, server_names
from holdfast._security.enrolment import files
from holdfast.errors import ConfigError, HoldfastError, StoreError, WrongState
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.backup import MAGIC, read_passphrase
from holdfast_controller.shell.backup.restore_places import Targets, settings_for, targets_of
from holdfast_controller.shell.backup.sealed_stream import Opener
from holdfast_controller.shell.base.config import CertificateConfig
from holdfast_controller.shell.store.schema import web_sessions
from holdfast_controller.shell.store.store import Store

_PIECE = 1 << 20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
_LOCK = "controller.lock"


def main(argv: Sequence[str]) -> int:
    """0 when the controller may be started, 1 with a sentence on stderr when not."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller restore",
        description="Make a controller from a backup, on a machine where there is none. The lost one must be off.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="that holdfast-controller backup has made")
    parser.add_argument("--to", type=Path, metavar="DIR", help="for everything [default: where it was]")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="instead of asking for it")
    parser.add_argument("--ca-key", type=Path, metavar="FILE", help="for a backup without keys: the CA's key")
    parser.add_argument(
        "--advertise", metavar="HOST", help="the name under which others reach this machine, if it is another one"
    )
    options = parser.parse_args(argv)
    try:
        done, cluster, targets = restore(
            options.file, options.to, options.passphrase_file, options.ca_key, options.advertise
        )
    except HoldfastError as error:
        print(f"holdfast-controller: {error}", file=sys.stderr)  # noqa: T201
        return 1
    taken = datetime.datetime.fromtimestamp(done.taken_at).astimezone()
    settings = tomllib.loads(targets.settings.read_text())
    admins = settings.get("admins") or ["NAME"]
    move = _MOVE.format(settings=targets.settings) if settings.get("database_url") else ""
    people = ", ".join(sorted(cluster.people.roles)) or "none"
    going = sum(not job.terminal for job in cluster.jobs.values())
    print(  # noqa: T201
        _NEXT.format(
            cluster=done.cluster,
            taken=f"{taken:%Y-%m-%d %H:%M:%S}",
            jobs=len(cluster.jobs),
            going=going,
            hosts=len(cluster.hosts),
            people=people,
            settings=targets.settings,
            move=move,
            admin=admins[0],
        )
    )
    return 0


def restore(
    file: Path,
    to: Path | None = None,
    passphrase_file: Path | None = None,
    ca_key: Path | None = None,
    advertise: str | None = None,
) -> tuple[mf.Manifest, Cluster, Targets]:
    """See the module. Returns what was restored, as it stands now, and where. Raises ``HoldfastError``."""
    if advertise is not None:
        server_names.checked(advertise, "--advertise")
    with _opened(file, passphrase_file) as (tar, packed):
        try:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == mf.NAME else None
            if content is None:
                raise StoreError(f"{file} has no manifest of a backup.", fix="Name another file.")
            done = mf.load(content.read(64 << 20))
            targets = targets_of(done.layout, to)
            _check_free(targets)
            with only_one(targets.state_dir, "controller", wait_s=0.0):
                staging = targets.state_dir / f".restoring-{os.getpid()}"
                try:
                    staging.mkdir(mode=0o700)
                    _unpack(tar, done, staging)
                    while packed.read(_PIECE):
                        pass
                    settings = settings_for((staging / mf.SETTINGS).read_text(), done.layout, targets, advertise)
                    _certify(done, staging, ca_key, settings)
                    cluster = _begin_anew(staging / mf.STORE, done)
                    _move(done, staging, targets, settings)
                finally:
                    shutil.rmtree(staging, ignore_errors=True)
        except gzip.BadGzipFile:
            raise
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            raise StoreError(f"Cannot restore{where}: {error.strerror}.") from error
    return done, cluster, targets


@contextlib.contextmanager
def _opened(file: Path, passphrase_file: Path | None) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """The members, and what they are read from: only at its end is it known that no byte was changed."""
    try:
        raw = file.open("rb")
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from error
    with raw:
        if raw.read(len(MAGIC)) != MAGIC:
            raise StoreError(f"{file} is no backup of a controller.", fix="Name another file.")
        try:
            salt = bytes.fromhex(json.loads(raw.readline(4096))["salt"])
        except (ValueError, KeyError) as error:
            raise StoreError(f"{file} is damaged: its head can't be read.") from error
        inner: IO[bytes] = raw
        if salt:
            inner = cast("IO[bytes]", Opener(raw, _passphrase(passphrase_file), salt))
        with gzip.GzipFile(fileobj=inner) as packed:
            try:
                tar = tarfile.open(mode="r|", fileobj=packed)  # noqa: SIM115 (it holds nothing of its own)
                yield tar, packed
            except _DAMAGE as error:
                fix = "Take another copy of it, or an earlier one."
                raise StoreError(f"{file} is damaged, or cut short: {error}.", fix=fix) from error


def _passphrase(file: Path | None) -> str:
    if file is not None:
        return read_passphrase(file)
    if not sys.stdin.isatty():
        problem = "The backup is under a passphrase, and there is no terminal to ask for it."
        raise ConfigError(problem, fix="Write --passphrase-file FILE.")
    return getpass.getpass("Passphrase of the backup: ")


def _check_free(targets: Targets) -> None:
    """Raises ``WrongState`` where something is there already."""
    state = targets.state_dir
    there = [path for path in state.iterdir() if path.name != _LOCK] if state.is_dir() else []
    if there:
        with only_one(state, "controller", wait_s=0.0):  # one that runs is named
            raise WrongState(f"{state} is not empty: {there[0].name} is there.", fix=_ELSEWHERE)
    for path in (targets.settings, targets.cert, targets.key, targets.ca_directory or targets.ca):
        if path.exists():
            raise WrongState(f"There is a {path} already.", fix=_ELSEWHERE)


def _unpack(tar: tarfile.TarFile, done: mf.Manifest, staging: Path) -> None:
    """Every member as the manifest has it, and nothing else. Raises ``StoreError``."""
    wanted = {member.name: member for member in done.members}
    while (entry := tar.next()) is not None:
        member, content = wanted.pop(entry.name, None), tar.extractfile(entry)
        if member is None or content is None or entry.size != member.size:
            raise StoreError(f"The backup holds {entry.name!r}, which is not what its manifest says.")
        path = staging / member.name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            while piece := content.read(_PIECE):
                digest.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != member.sha256:
            raise StoreError(f"The backup is damaged: {member.name} is not what was backed up.")
    if wanted:
        raise StoreError(f"The backup is cut short: {min(wanted)} is missing.")


def _certify(done: mf.Manifest, staging: Path, ca_key: Path | None, settings: str) -> None:
    """Issue the controller a new certificate, so that its key needs no backup. It names this machine."""
    own, ca = staging / "own", staging / "ca"
    own.mkdir(exist_ok=True)
    if not done.layout.ca_directory:
        if not done.keys:
            fix = "Bring the controller's certificate and key there by yourself, and write --to another folder."
            raise ConfigError("The backup has neither a CA nor the controller's key.", fix=fix)
        return
    if not done.keys:
        if ca_key is None:
            raise ConfigError("The backup is without keys.", fix="Write --ca-key FILE: the copy of ca.key.")
        files.write(ca / "ca.key", ca_key.read_bytes(), 0o600)
    pki.check_ca(ca)
    serving = Identity(done.cluster, Kind.CONTROLLER, "controller")
    lifetime = datetime.timedelta(seconds=CertificateConfig().controller)
    pki.issue(ca, serving, own, "controller", lifetime=lifetime, server=True, names=_names(settings))
    (own / "controller.pem").rename(own / "cert.pem")
    (own / "controller.key").rename(own / "key.key")


def _names(settings: str) -> frozenset[str]:
    """By settings that may be wrong otherwise, which the next start says."""
    try:
        table = tomllib.loads(settings)
    except tomllib.TOMLDecodeError:
        return server_names.served(())
    given = [name for name in (table.get("advertise"), *table.get("names", ())) if name]
    return server_names.served(given, [table[key] for key in ("listen", "enrolment_listen") if table.get(key)])


def _begin_anew(database: Path, done: mf.Manifest) -> Cluster:
    """Read the log, which proves it whole, and go on beyond what the lost controller can have written."""
    store = Store(database)
    try:
        store.call(store.open).result()
        store.call(_sign_out, store).result()
        return store.call(store.continue_from_backup, Wall(time.time()), Wall(done.taken_at)).result()  # type: ignore[no-any-return]
    finally:
        store.close()


def _sign_out(store: Store) -> None:
    """Forget browser sessions: one that was ended since the backup must not come back."""
    store.transaction(lambda database: database.execute(sa.delete(web_sessions)))


def _move(done: mf.Manifest, staging: Path, targets: Targets, settings: str) -> None:
    for folder in (targets.settings.parent, targets.cert.parent, targets.key.parent):
        files.folder(folder)
    if targets.ca_directory is not None:
        files.folder(targets.ca_directory.parent)
        (staging / "ca").rename(targets.ca_directory)
    elif not targets.ca.exists():
        files.write(targets.ca, (staging / "own/ca.pem").read_bytes(), 0o644)
    files.write(targets.cert, (staging / "own/cert.pem").read_bytes(), 0o644)
    files.write(targets.key, (staging / "own/key.key").read_bytes(), 0o600)
    for name in ("bundles", "audit"):
        (staging / name).mkdir(exist_ok=True)
    for log in (staging / "audit").iterdir():
        log.rename(targets.state_dir / log.name)
    (staging / "bundles").rename(targets.state_dir / "bundles")
    if (staging / mf.SECRETS_KEY).exists():
        files.write(targets.state_dir / "secrets.key", (staging / mf.SECRETS_KEY).read_bytes(), 0o600)
    (staging / mf.STORE).rename(targets.state_dir / "holdfast.db")
    handle = os.open(targets.state_dir, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    files.write(targets.settings, settings.encode(), 0o600)


_MOVE = """Move the log to an empty database, and name it in the settings, as this says:
   holdfast-controller move-store --to URL --config {settings}
   """
_ELSEWHERE = "Restore where no controller was, or name another folder: --to DIR."
_NEXT = """The cluster {cluster} is back as it was at {taken}: {jobs} jobs, {going} going on, {hosts} hosts.

1. Be sure that the lost controller is off and stays so.
2. {move}Start this one:                holdfast-controller --config {settings}
3. See what hosts say they run:   holdfast host list       and what jobs wait for: holdfast ps
4. Check who may do what; rights that were taken away since the backup are back: holdfast user list
   Users now: {people}
5. Without your own files:        holdfast-controller admin {admin} --config {settings}"""
