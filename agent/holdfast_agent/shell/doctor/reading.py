"""Small reads that looks have in common. Nothing here raises for what isn't there."""

from __future__ import annotations

import subprocess
from pathlib import Path

COMMAND_S = 5.0


def text(path: str | Path, default: str = "") -> str:
    """A small file's, stripped; the default where it can't be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return default


def number(path: str | Path, default: int) -> int:
    """A file's that holds one whole number."""
    found = text(path)
    return int(found) if found.lstrip("-").isdecimal() else default


def said(*command: str) -> str:
    """Output of a command; empty if it can't be run, fails or takes longer than ``COMMAND_S``."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def drop_ins(name: str, folders: tuple[str, ...] = ("/usr/lib", "/run", "/etc")) -> tuple[str, ...]:
    """Texts of a file of systemd's, such as ``logind.conf``, and of its drop-ins; what counts more comes later."""
    first = next((found for above in reversed(folders) if (found := text(f"{above}/systemd/{name}"))), "")
    parts: dict[str, Path] = {}
    for above in folders:
        parts |= {path.name: path for path in Path(above, "systemd", f"{name}.d").glob("*.conf")}
    return (first, *(text(parts[part]) for part in sorted(parts)))
