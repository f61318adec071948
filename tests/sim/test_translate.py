"""What the simulation makes of messages is what the wire makes of them."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang
from tests.sim.cluster import translate

from holdfast._session.reports import WorkerId
from holdfast_agent.shell.session import convert
from holdfast_controller.core.step import actions as act
from holdfast_controller.shell.convert import agent_messages

KEY = WorkerId("a", "workerpool0-0")


@pytest.mark.parametrize("replaced", [False, True])
def test_assignments_of_a_job_s_life_arrive_as_over_the_wire(replaced: bool) -> None:
    world = World(hosts=2)
    world.submit("a", gang(2, retries=1, replace_when_lost=replaced))
    world.run("a")
    world.exit("a", 1, 1)
    world.run("a")
    world.cancel("a")
    world.empty("a")
    orders = [action.assignment for action in world.sent if isinstance(action, act.Assign)]
    assert {order.phase.name for order in orders} == {"PREPARE", "RUN", "STOP", "FORGET"}
    for order in orders:
        over_the_wire = convert.assignment(agent_messages.assignment(order, 60.0))
        assert translate.assignment(order, 60.0) == over_the_wire
