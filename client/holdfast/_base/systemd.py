"""Whether systemd supervises one of our daemons on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

UNITS = (Path("/etc/systemd/system"), Path("/usr/lib/systemd/system"))


def start_line(daemon: str, settings: Path, units: Sequence[Path] = UNITS) -> str:
    """The command that starts ``daemon``: its unit, if there is one that reads these settings."""
    for folder in units:
        try:
            text = (folder / f"{daemon}.service").read_text()
        except OSError:
            continue
        if f"--config {settings}\n" in text:
            return f"systemctl enable --now {daemon}"
    return f"{daemon} --config {shlex.quote(str(settings))}"
