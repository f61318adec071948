"""The settings of a restored controller name its new places, and all else in them stays as it is."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

from holdfast_controller.shell.backup.manifest import Layout
from holdfast_controller.shell.backup.restored_settings import settings_for

PATHS = "/etc/c.toml", "/var/c", "/var/c/ca/ca.pem", "/var/c/own.pem", "/var/c/own.key", "/var/c/ca"
LAYOUT = Layout(*map(Path, PATHS))


def test_characters_that_end_a_line_elsewhere_end_none_here() -> None:
    values = dataclasses.asdict(LAYOUT)
    del values["settings"]
    text = "".join(f'{key} = "{value}"\n' for key, value in values.items())
    text += '# said so\u2028by ben\n[[notifications]]\nname = "ops"\nurl = "https://x.example/a\u0085b"\r\n'
    made = tomllib.loads(settings_for(text, LAYOUT, LAYOUT.below(Path("/new")), "ctl2.lab"))
    assert made["notifications"] == [{"name": "ops", "url": "https://x.example/a\u0085b"}]
    assert (made["state_dir"], made["advertise"]) == ("/new/state", "ctl2.lab")
