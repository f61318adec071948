"""Quotas in controller.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast._base import config
from holdfast.errors import ConfigError
from holdfast_controller.core.model.accounts.quota import Quota, quota_of
from holdfast_controller.shell.base.config import ControllerConfig

BASE = """
listen = "127.0.0.1:0"
state_dir = "state"
ca = "ca.pem"
cert = "cert.pem"
key = "key.pem"
cluster = "lab"
"""


def load(tmp_path: Path, text: str) -> ControllerConfig:
    path = tmp_path / "controller.toml"
    path.write_text(BASE + text)
    return config.load(ControllerConfig, path)


def test_each_project_has_its_table_and_the_others_one_for_all(tmp_path: Path) -> None:
    text = '[quotas.vision]\ngpus = 8\nrunning_jobs = 3\nwaiting_jobs = 7\n[quotas."*"]\nrunning_jobs = 1\n'
    limits = load(tmp_path, text).limits
    assert quota_of(limits, "vision") == Quota(8, 3, 7)
    assert quota_of(limits, "speech") == Quota(None, 1)
    assert quota_of(load(tmp_path, "").limits, "speech") is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "[quotas.vision]\ngpuz = 8\n",
            "unknown key 'quotas.vision.gpuz'. Did you mean gpus? Known keys: gpus, max_priority,",
        ),
        ('[quotas.vision]\ngpus = "8"\n', "quotas.vision.gpus must be a whole number, not '8'."),
        ("[quotas]\nvision = 8\n", "quotas.vision must be a table."),
        ("quotas = 8\n", "quotas must be a table."),
        ("[quotas.vision]\ngpus = -1\n", "quotas.vision.gpus is -1. Write 0 or more, or leave it out."),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _ = load(tmp_path, text).limits
    assert complaint in str(refused.value)
