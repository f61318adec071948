"""Replaces files that hold keys: complete or not at all, and never readable by others for a moment."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write(path: Path, content: bytes, mode: int) -> None:
    """Replace ``path``, on disk when this returns. Raises ``OSError``."""
    # A key must never be readable by others, not even for a moment: mkstemp creates with 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
