"""Destinations of the files of a backup, and the settings that name them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from holdfast_controller.shell.backup.manifest import Layout


@dataclass(frozen=True)
class Targets:
    """Absolute paths of a controller's files."""

    settings: Path
    state_dir: Path
    ca: Path
    cert: Path
    key: Path
    ca_directory: Path | None


def targets_of(layout: Layout, to: Path | None) -> Targets:
    """The original paths, or the same paths below ``to``."""
    if to is None:
        ca_directory = Path(layout.ca_directory) if layout.ca_directory else None
        own = (Path(layout.ca), Path(layout.cert), Path(layout.key))
        return Targets(Path(layout.settings), Path(layout.state_dir), *own, ca_directory)
    root = to.absolute()
    state = root / "state"
    ca = state / "ca" if layout.ca_directory else None
    own_ca = state / "ca.pem" if ca is None else ca / Path(layout.ca).name
    return Targets(root / "controller.toml", state, own_ca, state / "controller.pem", state / "controller.key", ca)


def settings_for(text: str, layout: Layout, targets: Targets, advertise: str | None = None) -> str:
    """The settings, which name the places of ``targets``, and another host to ``advertise`` if one is given.

    All else in them stays as it is.
    """
    named = {
        "state_dir": (layout.state_dir, targets.state_dir),
        "ca": (layout.ca, targets.ca),
        "cert": (layout.cert, targets.cert),
        "key": (layout.key, targets.key),
        "ca_directory": (layout.ca_directory, targets.ca_directory),
    }
    lines = text.removesuffix("\n").split("\n")  # to Python other characters end a line too
    for key, (was, now) in named.items():
        if now is not None and str(now) != was:
            _write(lines, key, str(now))
    if advertise is not None and not _write(lines, "advertise", advertise):
        lines.insert(0, f"advertise = {json.dumps(advertise)}")  # before any table
    return "\n".join(lines) + "\n"


def _write(lines: list[str], key: str, value: str) -> bool:
    """Replace the line of a key; False if there is none."""
    for number, line in enumerate(lines):
        if line.partition("=")[0].strip() == key:
            lines[number] = f"{key} = {json.dumps(value)}"
            return True
    return False
