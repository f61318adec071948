"""Small files of the kernel's, in /proc and /sys: bounded reads that raise nothing and wait for no writer."""

from __future__ import annotations

import os
from pathlib import Path

SMALL = 4096
MOST_NAMES = 512
"""Devices of each kind; a host with more is read as far as that."""


def text(path: Path, most: int = SMALL) -> str:
    """The first ``most`` bytes without white space around them; empty where the file can't be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        parts, left = [], most
        while left and (data := os.read(file, left)):
            parts.append(data)
            left -= len(data)
        return b"".join(parts).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(file)


def names(folder: Path, prefix: str = "", most: int = MOST_NAMES) -> list[str]:
    """Names in a folder in their order, ``most`` at most; none where it can't be read."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix))[:most]
    except (OSError, ValueError):
        return []
