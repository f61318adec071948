"""A grace period that ends before Slurm kills what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.guard import slurm
from holdfast.guard.allocation import read

ALONE = read({}, "box")
IN_SLURM = replace(ALONE, kind="slurm")


@pytest.mark.parametrize(
    ("kill_wait", "grace_s"),
    [("30 sec", 10.0), ("12 sec", 7.0), ("5 sec", 1.0), ("", None), ("(null)", None)],
)
def test_ranks_have_what_kill_wait_leaves(
    monkeypatch: pytest.MonkeyPatch, kill_wait: str, grace_s: float | None
) -> None:
    monkeypatch.setattr(slurm, "settings", lambda: {"KillWait": kill_wait})

    assert slurm.grace_s(IN_SLURM, None) == grace_s
    assert slurm.grace_s(IN_SLURM, 20.0) == 20.0
    assert slurm.grace_s(ALONE, None) is None


def test_settings_are_read_from_what_scontrol_prints() -> None:
    printed = b"Configuration data as of now\nKillWait                = 30 sec\nAuthInfo = socket=/run/x,ttl=5\n"

    assert slurm.facts(printed, "=")["KillWait"] == "30 sec"
    assert slurm.facts(printed, "=")["AuthInfo"] == "socket=/run/x,ttl=5"
