"""Settings that ``init``, ``join`` and ``login`` write."""

from __future__ import annotations

import tomllib

import pytest

from holdfast._security.enrolment import files


@pytest.mark.parametrize("text", ["/srv/ünï code", "/srv/\N{ROCKET}", "/srv/\x7f", 'a"b\\c', "tab\there"])
def test_any_text_is_read_as_it_was(text: str) -> None:
    written = files.toml("Made by a test.", {"state_dir": text, "labels.x": [text]}).decode()
    assert tomllib.loads(written) == {"state_dir": text, "labels": {"x": [text]}}
