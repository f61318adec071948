"""A few rows of the fault matrix with real processes; ``bench/hang_real.py`` has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.hang_real import Outcome, Run, named_right
from bench.hang_real_cases import FAULTS, NEGATIVES, Case

from holdfast_agent.shell.sampling import place

CASES = {case.name: case for case in (*FAULTS, *NEGATIVES)}


async def outcome(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Outcome]:
    monkeypatch.setattr(place, "FILES_EVERY_S", 2.0)
    return CASES[name], await Run(CASES[name], tmp_path).play()


@pytest.mark.parametrize("name", ["endless sleep", "SIGSTOP of a rank"])
async def test_a_rank_that_stands_still_is_found_and_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, found = await outcome(name, tmp_path, monkeypatch)
    assert not found.false_notice
    noticed, acted = found.since(found.noticed_s), found.since(found.acted_s)
    assert noticed is not None and acted is not None and noticed <= acted < 60, found.health
    assert named_right(case, found), found.health


async def test_a_rank_that_saves_while_its_peers_wait_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CASES, "short", Case("short", "save", rank=0, fault=False, watch_s=25, lasts_s=20))
    _, found = await outcome("short", tmp_path, monkeypatch)
    assert found.began_s is not None
    assert (found.noticed_s, found.acted_s, found.false_notice) == (None, None, ""), found.health
