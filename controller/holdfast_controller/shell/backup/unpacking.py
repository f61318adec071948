"""Unpacks a backup beside the places of its files, checks every byte, and gives them their names, settings last."""

from __future__ import annotations

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
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from holdfast._base.dataclass import dataclass
from holdfast._base.durable import sync
from holdfast._base.identity import Identity, Kind
from holdfast._daemon.instance_lock import only_one
from holdfast._security import pki, server_names
from holdfast._security.enrolment import files
from holdfast.errors import ConfigError, StoreError, WrongState
from holdfast_controller.shell.backup import manifest as mf
from holdfast_controller.shell.backup.backup import MAGIC, read_passphrase
from holdfast_controller.shell.backup.places import reading
from holdfast_controller.shell.backup.restored_settings import settings_for
from holdfast_controller.shell.backup.sealed_stream import Opener
from holdfast_controller.shell.base.config import CertificateConfig

_PIECE = 1 << 20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
_LOCK = "controller.lock"
BUNDLES = "bundles"
"""Folder of packaged code in a controller's state."""


@dataclass(frozen=True)
class Unpacked:
    """A backup whose files are in ``staging``, whole, and not yet in the places of ``targets``."""

    done: mf.Manifest
    targets: mf.Layout
    staging: Path
    advertise: str | None

    def settings(self) -> str:
        """The settings, with the new places in them, and the name of this machine."""
        text = (self.staging / mf.SETTINGS).read_text()
        return settings_for(text, self.done.layout, self.targets, self.advertise)


@contextlib.contextmanager
def unpacked(
    file: Path | str,
    to: Path | None,
    passphrase_file: Path | None,
    advertise: str | None,
    *,
    bundles_may_be_there: bool,
) -> Iterator[Unpacked]:
    """Unpack a backup for the places that it names, or for those below ``to``, which have to be free.

    What has not got its place at the end of the block is removed. Raises ``HoldfastError``.
    """
    if advertise is not None:
        server_names.checked(advertise, "--advertise")
    with _opened(file, passphrase_file) as (tar, packed):
        try:
            first = tar.next()
            content = tar.extractfile(first) if first is not None and first.name == mf.NAME else None
            if content is None:
                raise StoreError(f"{file} has no manifest of a backup.", fix="Name another file.")
            done = mf.load(content.read(64 << 20))
            targets = done.layout if to is None else done.layout.below(to)
            _check_free(targets, BUNDLES if bundles_may_be_there else "")
            with _gone_if_refused(targets.state_dir), only_one(targets.state_dir, "controller", wait_s=0.0):
                staging = targets.state_dir / f".restoring-{os.getpid()}"
                try:
                    staging.mkdir(mode=0o700)
                    _unpack(tar, done, staging)
                    while packed.read(_PIECE):
                        pass
                    yield Unpacked(done, targets, staging, advertise)
                finally:
                    shutil.rmtree(staging, ignore_errors=True)
        except gzip.BadGzipFile:
            raise
        except OSError as error:
            where = f" {error.filename}" if error.filename else ""
            raise StoreError(f"Cannot restore{where}: {error.strerror}.") from error


@contextlib.contextmanager
def _gone_if_refused(folder: Path) -> Iterator[None]:
    """Removes ``folder``, and those above it that weren't there, where the block raises and left nothing in them."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    except BaseException:
        if made:
            (folder / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()
        raise


@contextlib.contextmanager
def _opened(file: Path | str, passphrase_file: Path | None) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """The members, and what they are read from: only at its end is it known that no byte was changed."""
    with reading(file) as raw:
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


def _check_free(targets: mf.Layout, besides: str) -> None:
    """Raises ``WrongState`` where something is there already."""
    state = targets.state_dir
    there = [path for path in state.iterdir() if path.name not in (_LOCK, besides)] if state.is_dir() else []
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


def certify(parts: Unpacked, settings: str, ca_key: Path | None) -> None:
    """Issue the controller a new certificate, so that its key needs no backup. It names this machine."""
    done, own, ca = parts.done, parts.staging / "own", parts.staging / "ca"
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
    pki.mend_change(ca)  # the backup may have been made between its files
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


def put_in_place(parts: Unpacked, settings: str) -> None:
    """Give every file that was unpacked its name, the settings last."""
    staging, targets = parts.staging, parts.targets
    for folder in (targets.settings.parent, targets.cert.parent, targets.key.parent):
        files.folder(folder)
    if targets.ca_directory is not None:
        _put_ca(staging / "ca", targets.ca_directory)
    if not targets.ca.exists():  # it may be a copy of that of the CA's folder
        files.folder(targets.ca.parent)
        own = targets.ca_directory or staging / "own"
        files.write(targets.ca, (own / "ca.pem").read_bytes(), 0o644)
    files.write(targets.cert, (staging / "own/cert.pem").read_bytes(), 0o644)
    files.write(targets.key, (staging / "own/key.key").read_bytes(), 0o600)
    for name in (BUNDLES, "audit"):
        (staging / name).mkdir(exist_ok=True)
    for log in (staging / "audit").iterdir():
        log.rename(targets.state_dir / log.name)
    if not (targets.state_dir / BUNDLES).exists():
        (staging / BUNDLES).rename(targets.state_dir / BUNDLES)
    if (staging / mf.SECRETS_KEY).exists():
        files.write(targets.state_dir / "secrets.key", (staging / mf.SECRETS_KEY).read_bytes(), 0o600)
    if (staging / mf.STORE).exists():
        (staging / mf.STORE).rename(targets.state_dir / "holdfast.db")
    sync(targets.state_dir)
    files.write(targets.settings, settings.encode(), 0o600)


def _put_ca(staged: Path, folder: Path) -> None:
    """All of the CA or nothing; its folder may be on another file system than the state."""
    files.folder(folder.parent)
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        fresh.mkdir(mode=0o700)
        for path in staged.iterdir():
            files.write(fresh / path.name, path.read_bytes(), 0o644 if path.suffix == ".pem" else 0o600)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


_ELSEWHERE = "Restore where no controller was, or name another folder: --to DIR."
