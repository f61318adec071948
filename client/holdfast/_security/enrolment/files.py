"""Writing keys, certificates and settings: complete or not at all, and never readable by others for a moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from holdfast._base.umask import closed_to_others
from holdfast._security import replacing
from holdfast.errors import ConfigError


def folder(directory: Path, mode: int = 0o755) -> None:
    """Make a directory. Raises ``ConfigError``."""
    try:
        with closed_to_others():
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot create {directory}: {error.strerror}.", fix=_RIGHTS) from error


def write(path: Path, content: bytes, mode: int) -> None:
    """Replace ``path``, on disk when this returns. Raises ``ConfigError``."""
    try:
        replacing.write(path, content, mode)
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.", fix=_RIGHTS) from error


def toml(comment: str, values: Mapping[str, object]) -> bytes:
    """Settings as TOML: text, whole numbers, booleans and lists of them; keys with a dot go into tables."""
    lines = [f"# {comment}"] + [f"{key} = {_written(value)}" for key, value in values.items()]
    return ("\n".join(lines) + "\n").encode()


_RIGHTS = "Run it as a user who may, or name another folder."


def _written(value: object) -> str:
    """A value as TOML: JSON does, if only control characters are escaped, of which it leaves one as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
