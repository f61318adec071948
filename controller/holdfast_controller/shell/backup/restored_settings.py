"""The settings of a backup, with the places that its files get."""

from __future__ import annotations

import json

from holdfast_controller.shell.backup.manifest import Layout


def settings_for(text: str, layout: Layout, targets: Layout, advertise: str | None = None) -> str:
    """The settings, which name the places of ``targets``, and another host to ``advertise`` if one is given.

    All else in them stays as it is.
    """
    lines = text.removesuffix("\n").split("\n")  # to Python other characters end a line too
    for key in ("state_dir", "ca", "cert", "key", "ca_directory"):
        now = getattr(targets, key)
        if now is not None and now != getattr(layout, key):
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
