"""How people are told to start a daemon."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast._base.systemd import start_line

ROOT = Path(__file__).parents[3]
SETTINGS = Path("/etc/holdfast/agent.toml")


def test_a_daemon_with_a_unit_is_started_by_systemd(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy/systemd/holdfast-agent.service", tmp_path)
    units = [tmp_path / "missing", tmp_path]
    assert start_line("holdfast-agent", SETTINGS, units) == "systemctl enable --now holdfast-agent"


def test_a_unit_that_reads_other_settings_is_none(tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy/systemd/holdfast-agent.service", tmp_path)
    line = start_line("holdfast-agent", Path("/home/ann/agent.toml"), [tmp_path])
    assert line == "holdfast-agent --config /home/ann/agent.toml"


def test_without_a_unit_the_daemon_itself_is_named(tmp_path: Path) -> None:
    assert start_line("holdfast-agent", SETTINGS, [tmp_path]) == f"holdfast-agent --config {SETTINGS}"
