"""Requests for logs: what is asked of each rank's host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.scenarios.world import World, gang

from holdfast._base.proto_values import seconds, timestamp
from holdfast.v1 import job_pb2
from holdfast_controller.shell.services.streams.read_logs import LogReading


class Names(list[Any]):
    """A repeated field, in which looking for something goes through all of it."""

    def __contains__(self, value: object) -> bool:
        raise AssertionError(f"{value} was looked for in a list")


def test_names_of_a_request_are_not_gone_through_for_each_rank() -> None:
    """99,000 names took 6 ms for each rank of the job, during which no other call was answered."""
    world = World(hosts=2)
    world.submit("j", gang(2))
    world.run("j")
    _, second = world.cluster.jobs["j"].gang.members
    asked = SimpleNamespace(
        id="j",
        workers=Names([second.name]),
        ranks=Names(second.ranks),
        generation=0,
        follow=False,
        streams=[],
        offset=0,
        end_offset=0,
        contains="",
    )
    reading = LogReading(SimpleNamespace(cluster=world.cluster), None, asked, "ann")  # type: ignore[arg-type]
    reading._check()
    assert {source.member for source in reading._sources(1, first=True)} == {second}


@pytest.mark.parametrize("ahead_s", [-86_400.0, 0.0, 0.5, 86_400.0])
def test_a_time_from_which_on_is_asked_by_the_clock_of_each_host(ahead_s: float) -> None:
    """A host whose clock is a day behind told nothing, or all, of the last ten minutes."""
    world = World(hosts=2)
    world.submit("j", gang(2))
    world.run("j")
    world.wall_clocks = {"host-1": ahead_s}
    world.wait(60, beating=("host-0", "host-1"))
    since = world.wall - 600
    asked = job_pb2.StreamLogsRequest(id="j", since=timestamp(since))
    reading = LogReading(SimpleNamespace(cluster=world.cluster), None, asked, "ann")  # type: ignore[arg-type]
    orders = {source.host: reading._order(source, 0, first=True) for source in reading._sources(1, first=True)}
    off_s = ahead_s if abs(ahead_s) > 1 else 0.0
    assert {host: seconds(order.since) for host, order in orders.items()} == {
        "host-0": since,
        "host-1": since + off_s,
    }
