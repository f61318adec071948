"""What ``holdfast-agent join`` tells of the settings that it made."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast._security.enrolment.__main__ import says_who_works


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('name = "h1"', False),
        ('worker_user = ""', False),
        ('worker_user = "train"', True),
        ("allow_root_workers = true", True),
    ],
)
def test_an_agent_of_root_s_needs_a_user_for_its_workers(tmp_path: Path, settings: str, says: bool) -> None:
    (tmp_path / "agent.toml").write_text(settings)
    assert says_who_works(tmp_path / "agent.toml") is says
