"""The last event of a job has its reason, and a rank that waits for a person has the command that joins it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.scenarios.lifecycle.words import situations
from tests.scenarios.world import World, gang

from holdfast.hang.pipeline.features import Motion, OutputFeatures, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.waits import Wait, WaitKind
from holdfast_controller.core import events as ev
from holdfast_controller.core.messages.job import message_of


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        (situations.failed, "rank 1: ValueError: bad batch"),
        (situations.cancelled, "The job was cancelled by bob"),
        (
            situations.expired,
            "The job waited 10 min for hosts, as long as it may: needs 4 GPUs on one host (0 free on the best)",
        ),
    ],
)
def test_the_event_of_the_end_has_its_reason(situation: Callable[[], World], words: str) -> None:
    world = situation()
    (ended,) = [event for event in world.log if isinstance(event, ev.JobEnded) and event.job_id == "a"]
    assert message_of(ended, world.cluster.jobs["a"]) == words


def at_a_breakpoint(*, terminal: bool) -> World:
    world = World(hosts=2)
    made = gang()
    with_terminal = tuple(replace(pool, task=replace(pool.task, terminal=terminal)) for pool in made.pools)
    world.submit("a", replace(made, pools=with_terminal))
    world.run("a")
    job = world.cluster.jobs["a"]
    for member, place in zip(job.gang.members, job.places, strict=True):
        wait = Wait(WaitKind.PERSON, place="train.py:7 `step`") if member.index == 1 else None
        ranks = tuple(RankFeatures(rank, Motion.STIRRING, world.mono, wait=wait) for rank in member.ranks)
        features = OutputFeatures(world.mono)
        world.features("a", WorkerFeatures(member.name, place.host, world.mono, ranks, features))
    return world


def test_a_rank_at_a_breakpoint_has_the_command_that_joins_its_terminal() -> None:
    world = at_a_breakpoint(terminal=True)
    found, rank = situations.summary(world), world.cluster.jobs["a"].gang.members[1].ranks[0]
    assert f"rank {rank} waits for a person" in found.health
    assert found.advice == f"Answer it at its terminal, which yours joins by: holdfast job attach a --rank {rank}"


def test_a_rank_without_a_terminal_can_not_be_joined() -> None:
    assert "attach" not in situations.summary(at_a_breakpoint(terminal=False)).advice
