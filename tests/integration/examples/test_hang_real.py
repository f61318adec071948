"""A few rows of the fault matrix with real processes; ``bench/hangs/real.py`` has all of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from bench.hangs.real import Outcome, Run, named_right
from bench.hangs.real_cases import FAULTS, NEGATIVES, Case

from holdfast_agent.shell.sampling import worker

FAULTY = ("endless sleep", "SIGSTOP of a rank")
SAVES = Case("short", "save", rank=0, fault=False, watch_s=25, lasts_s=20)
CASES = {case.name: replace(case, watch_s=120.0) if case.fault else case for case in (*FAULTS, *NEGATIVES, SAVES)}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What became of each case. They are played side by side: all that they do is wait."""
    names = (*FAULTY, SAVES.name)

    async def play() -> list[Outcome]:
        return await asyncio.gather(*(Run(CASES[name], tmp_path_factory.mktemp("gang")).play() for name in names))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "FILES_EVERY_S", 2.0)
        return dict(zip(names, asyncio.run(play()), strict=True))


@pytest.mark.parametrize("name", FAULTY)
def test_a_rank_that_stands_still_is_found_and_named(name: str, outcomes: dict[str, Outcome]) -> None:
    found = outcomes[name]
    assert not found.false_notice
    noticed, acted = found.since(found.noticed_s), found.since(found.acted_s)
    assert noticed is not None and acted is not None and noticed <= acted, found.health
    assert named_right(CASES[name], found), found.health


def test_a_rank_that_saves_while_its_peers_wait_is_left_alone(outcomes: dict[str, Outcome]) -> None:
    found = outcomes[SAVES.name]
    assert found.began_s is not None
    assert (found.noticed_s, found.acted_s, found.false_notice) == (None, None, ""), found.health
