"""Ranks that begin warm, or go on, begin once the gang's first rank listens: who is refused tries again much later."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from tests.integration.shim.warm.in_process_gang import RANKS, WARM, Gang
from tests.integration.shim.warm.warm_jobs import Shim
from tests.support.rank_gang import free_port

from holdfast.training import first_rank

PROGRAM = """
import os, socket, sys, time
import holdfast
from holdfast.training import first_rank
first_rank.MEET_S = 60.0 if FIRST_LISTENS else 1.0

@holdfast.restartable
def train(kept):
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    generation, rank = int(os.environ["HOLDFAST_GENERATION"]), os.environ["RANK"]
    if rank == "0":
        time.sleep(0.5 if generation > 1 else 0)
        if FIRST_LISTENS or generation == 1:
            kept[:] = [socket.create_server(place)]
        met = "listens"
        if FIRST_LISTENS and generation > 1:
            try:
                while True:
                    all_came = len(kept) == GANG_SIZE
                    kept[0].settimeout(1.0 if all_came else 60.0)
                    kept.append(kept[0].accept()[0])
            except socket.timeout:
                met = f"{len(kept) - 1}-came"
    else:
        kept[:] = [socket.socket()]
        while (problem := kept[0].connect_ex(place)) and generation == 1:
            time.sleep(0.01)
        met = os.strerror(problem)
    print(f"{generation}.{rank}", os.getpid(), met, "HOLDFAST_MEET" in os.environ, flush=True)
    try:
        while not os.path.exists(f"fate.{generation}.{rank}"):
            time.sleep(0.005)
        sys.exit(3)
    finally:
        kept[0].close()

train([])
"""
ALL_MEET = "from holdfast_agent.shim.warm import warm_starts, imports\nwarm_starts.QUIET_S = imports.QUIET_S = 1.0"


def second(hasty: Callable[..., Shim], failed: int, *, in_process: bool, listens: bool) -> list[list[str]]:
    """What the ranks of a second generation say of the first one, by rank, once ``failed`` has failed in the first."""
    gang = Gang(hasty(ALL_MEET), PROGRAM.replace("FIRST_LISTENS", str(listens)).replace("GANG_SIZE", str(RANKS)))
    warm = {**WARM, "in_process": in_process}
    gang.job.env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    gang.launch(1, warm)
    gang.until(lambda: any(" wait in " in each for each in gang.said(1)))
    gang.crash(1, failed)
    gang.stop(1)
    gang.job.env["MASTER_PORT"] = str(free_port())
    found = gang.launch(2, warm)
    assert gang.in_process(2) == (set(range(RANKS)) - {failed} if in_process else set())
    assert all(each.get("warm") for each in gang.of("started", 2).values())
    gang.stop(2, another=False)
    return [found[rank][2:] for rank in range(RANKS)]


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("failed", [0, 2])
def test_nobody_is_refused_by_a_first_rank_that_is_late(
    hasty: Callable[..., Shim], failed: int, in_process: bool
) -> None:
    assert second(hasty, failed, in_process=in_process, listens=True) == [
        [f"{RANKS - 1}-came", "False"],
        *[["Success", "False"]] * (RANKS - 1),
    ], "and it is asked by its peers alone"


@pytest.mark.parametrize("in_process", [False, True])
def test_a_first_rank_that_never_listens_is_not_waited_for_for_ever(
    hasty: Callable[..., Shim], in_process: bool
) -> None:
    found = second(hasty, 2, in_process=in_process, listens=False)
    assert found[1:] == [["Connection", "refused", "False"]] * (RANKS - 1)


@pytest.mark.parametrize("asked", [True, False])
def test_a_first_rank_on_another_host_is_asked_only_where_it_is_torch_that_listens(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """Any other program may take who asks for a peer."""
    questions: list[object] = []

    def answers(*question: object) -> bool:
        questions.append(question)
        return True

    monkeypatch.setattr(first_rank, "_answers", answers)
    if asked:
        monkeypatch.setitem(sys.modules, "torch.distributed", sys)
    else:
        monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "192.0.2.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    first_rank.await_listening()
    assert bool(questions) == asked
