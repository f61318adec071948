"""What an assignment says of a worker: its launch, its deadline without us, and its warning."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from tests.unit.controller.examples import EVENTS
from tests.unit.controller.job_examples import GANG

from holdfast._session.assignment import Assignment, Phase, Rendezvous
from holdfast._session.reports import WorkerId
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Pool, Task
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.warning import WarningSignal
from holdfast_controller.core.step.actions import StopOrphan
from holdfast_controller.core.step.assignment import desired, released
from holdfast_controller.shell.convert import agent_messages


def until(kind: type[ev.Event], different: Mapping[str, Any] = MappingProxyType({}), **changes: object) -> Cluster:
    """Up to the first event of a kind, which may be ``different``, with a changed gang."""
    cluster = Cluster(epoch=3)
    for event in EVENTS:
        if isinstance(event, ev.JobSubmitted):
            event = replace(event, gang=replace(event.gang, **changes), spec_json='{"x": 1}')  # type: ignore[arg-type]
        if isinstance(event, kind):
            fold(cluster, replace(event, **different))
            break
        fold(cluster, event)
    return cluster


def order(cluster: Cluster, index: int = 0, lease_s: float = 60.0) -> Assignment:
    return desired(cluster, cluster.jobs["a"], index, lease_s)


def test_a_placed_worker_is_to_be_prepared_with_all_that_its_launch_needs_but_the_addresses() -> None:
    cluster = until(ev.JobPlaced, output_uri="/results")
    asked = order(cluster)
    assert (asked.epoch, asked.key, asked.attempt, asked.generation, asked.phase) == (
        *(3, WorkerId("a", "workerpool0-0"), 1, 1),
        Phase.PREPARE,
    )
    launch = asked.launch
    assert launch is not None
    assert launch.task is GANG.pools[0].task
    assert (launch.gpus, launch.output_uri, launch.spec_json) == (("GPU-1", "GPU-2"), "/results", '{"x": 1}')
    assert (launch.worker_count, launch.world_size, launch.process_starts) == (3, GANG.world_size, 1)
    assert launch.rendezvous is None
    last = order(cluster, 2).launch
    assert last is not None
    assert [(each.cpu_count, each.memory_mb) for each in (launch, last)] == [(0, 0), (4, 100)]


def test_addresses_are_put_together_once_for_a_generation() -> None:
    cluster = until(ev.GangLaunched)
    first, last = order(cluster).launch, order(cluster, 2).launch
    assert first is not None and last is not None
    pools = tuple(
        tuple(f"10.0.0.1:{member.index + 1}" for member in GANG.members if member.pool == number)
        for number in range(len(GANG.pools))
    )
    assert first.rendezvous == Rendezvous("10.0.0.1", 20001, "s", pools)
    assert first.rendezvous is last.rendezvous


def test_a_worker_that_has_left_a_host_is_to_be_forgotten_there() -> None:
    cluster = until(ev.GangLaunched)
    forget = released(cluster, cluster.jobs["a"], 1)
    assert (forget.phase, forget.launch, forget.key.worker) == (Phase.FORGET, None, GANG.members[1].name)


def test_only_a_job_that_is_replaced_when_its_host_is_lost_ends_by_itself() -> None:
    kept = order(until(ev.GangLaunched))
    assert (kept.fence_s, kept.peer_fence_s) == (0.0, 0.0)
    replaced = order(until(ev.GangLaunched, replace_when_lost=True))
    assert (replaced.fence_s, replaced.peer_fence_s) == (60.0, 0.0)
    guarded = order(until(ev.GangLaunched, replace_if_isolated=True))
    assert (guarded.fence_s, guarded.peer_fence_s) == (0.0, 60.0)


def test_a_warning_goes_as_the_number_of_its_signal_to_the_generations_that_are_warned() -> None:
    cluster = until(ev.GangLaunched, warning=WarningSignal(10, 5.0))
    assert order(cluster).warn_signal == 0
    cluster.jobs["a"].warned = 1
    assert order(cluster).warn_signal == 10


def test_work_of_an_unknown_job_is_to_be_stopped_and_forgotten() -> None:
    message = agent_messages.stop_orphan(StopOrphan("h1", 1, "gone", "workerpool0-0", 7), epoch=3)
    assert (message.job_id, message.worker, message.generation, message.attempt) == ("gone", "workerpool0-0", 7, 1)
    assert (message.grace_period.seconds, message.HasField("launch")) == (30, False)


@pytest.mark.parametrize("skipped", [those for n in range(4) for those in itertools.combinations((1, 2, 3), n)])
def test_the_world_of_each_launch_is_that_of_chief_and_workers(skipped: tuple[int, ...]) -> None:
    counts = (1, 3, 2, 1)
    task = Task(("x",))
    gang = Gang(
        tuple(
            Pool(0, Task(())) if number in skipped else Pool(count, task, processes=2)
            for number, count in enumerate(counts)
        )
    )
    workers = sum(counts[number] for number in (0, 1) if number not in skipped)
    others = sum(counts[number] for number in (2, 3) if number not in skipped)
    assert (gang.world_workers, gang.world_size) == (workers, 2 * workers)
    assert (len(gang.members), gang.rank_count) == (workers + others, 2 * (workers + others))
    assert [member.name for member in gang.members] == [
        f"workerpool{number}-{n}"
        for number, count in enumerate(counts)
        if number not in skipped
        for n in range(count)
    ]
    placed = {"places": (Place("h1"),) * len(gang.members)}
    cluster = until(ev.JobPlaced, placed, pools=gang.pools)
    for member in gang.members:
        launch = order(cluster, member.index).launch
        assert launch is not None
        assert (launch.world_size, launch.worker_count) == (2 * workers, workers)
        assert launch.in_world is (member.pool < 2)
        assert launch.in_world is (launch.worker_index < launch.worker_count)
        assert launch.in_world is (launch.ranks[-1] < launch.world_size)
