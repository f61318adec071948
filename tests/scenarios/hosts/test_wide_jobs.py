"""A job on many hosts is shown by what its ranks have in common: its page's answer doesn't grow with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.scenarios.world import World, gang

from holdfast._sdk import json_view
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core.views import exits_alike
from holdfast_controller.shell.calls import committed_views

HOSTS, RANKS = 16, 8


def shown(world: World, **how: Any) -> job_pb2.CustomJob:
    async def settled() -> None: ...

    async def bring(names: Sequence[str]) -> None: ...

    reactor = SimpleNamespace(queue_view=world.reactor.queue_view)
    driver: Any = SimpleNamespace(cluster=world.cluster, reactor=reactor, settled=settled, bring=bring)
    committed_views.know_spec(world.cluster.jobs["wide"].spec_json, spec_pb2.CustomJobSpec())
    return asyncio.run(committed_views.committed_job(driver, "wide", "ann", **how))


@pytest.fixture
def world() -> World:
    """Rank 19 of 128 has failed, and the others were stopped for it."""
    made = World(hosts=HOSTS)
    made.submit("wide", gang(HOSTS, processes=RANKS))
    made.run("wide")
    made.wait(1)
    made.exit("wide", 19, 1, end_time=made.wall - 1)
    for rank in range(HOSTS * RANKS):
        if rank != 19:
            made.exit("wide", rank, "STOPPED", generation=1, end_time=made.wall)
    return made


def test_ranks_that_ended_alike_are_told_once(world: World) -> None:
    job = shown(world, fold_exits=True, workers=False)
    assert not job.workers
    assert job.host_count == HOSTS
    told = [(each.ranks, each.count, each.first.rank) for each in job.exit_groups]
    assert told == [("19", 1, 19), ("0-18,20-127", 127, 0)]
    whole = shown(world)
    assert sum(len(worker.exits) for worker in whole.workers) == HOSTS * RANKS
    assert 3 * job.ByteSize() < whole.ByteSize()
    assert len(json_view.exit_groups(job)["exitGroups"]) == 2


def test_workers_come_without_exits_that_are_folded(world: World) -> None:
    job = shown(world, fold_exits=True)
    assert len(job.workers) == HOSTS
    assert not any(worker.exits for worker in job.workers)
    assert sum(each.count for each in job.exit_groups) == HOSTS * RANKS


def test_exits_of_old_generations_are_left_out_where_newer_ones_are_asked_for(world: World) -> None:
    assert world.cluster.jobs["wide"].generation == 2
    assert len(shown(world, fold_exits=True, exits_of_newest=2).exit_groups) == 2
    assert not shown(world, fold_exits=True, exits_of_newest=1).exit_groups


def test_the_loop_goes_on_between_few_exits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits_alike, "PIECE", 50)
    assert len(list(exits_alike.exits_alike(world.cluster.jobs["wide"]))) == 3
