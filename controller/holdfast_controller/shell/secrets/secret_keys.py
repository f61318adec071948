"""The file of the keys that secrets are sealed by: one a line, the newest first; made at the first start.

A new key is put first by ``holdfast-controller rotate-secrets-key``. The next start encrypts every secret with it again
and drops the older ones, in this order, so that a crash in between leaves every secret readable.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast._base import config
from holdfast._security import replacing
from holdfast.errors import ConfigError
from holdfast_controller.shell.base.commands import add_settings, command
from holdfast_controller.shell.base.config import ControllerConfig

BITS = 256


def load_or_make(path: Path) -> tuple[bytes, ...]:
    """The keys, the newest first; a file with one is made where there is none. Raises ``ConfigError``."""
    if not path.exists():
        write(path, (AESGCM.generate_key(BITS),))
    return load(path)


def load(path: Path) -> tuple[bytes, ...]:
    """The keys, the newest first. Raises ``ConfigError``."""
    try:
        lines = path.read_text("ascii").split()
        keys = tuple(base64.b64decode(line, validate=True) for line in lines)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.", fix="It is the controller's own.") from error
    except (UnicodeDecodeError, binascii.Error):
        keys = ()
    if not keys or any(len(key) != BITS // 8 for key in keys):
        # From None: what was read would be in the cause.
        raise ConfigError(f"{path} holds no keys.", fix=_MEND) from None
    return keys


def write(path: Path, keys: Sequence[bytes]) -> None:
    """Replace the file durably, readable by its owner only. Raises ``ConfigError``."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replacing.write(path, b"".join(base64.b64encode(key) + b"\n" for key in keys), 0o600)
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from error


@command
def main(argv: Sequence[str]) -> int:
    """``holdfast-controller rotate-secrets-key``: 0 when there is a new key, 1 with a sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="holdfast-controller rotate-secrets-key", description="Make a new key for the secrets of jobs."
    )
    add_settings(parser)
    options = parser.parse_args(argv)
    path = config.load(ControllerConfig, options.config).secrets_key
    keys = load_or_make(path)
    owner = path.stat()
    write(path, (AESGCM.generate_key(BITS), *keys))
    os.chown(path, owner.st_uid, owner.st_gid)  # root does this, and another user runs the controller
    print(_ROTATED.format(path=path))  # noqa: T201
    return 0


_MEND = "Restore it from a backup, or move it away; then all secrets have to be set again."
_ROTATED = "{path} has a new key. Restart the controller: it seals all secrets with it and forgets the old one."
