"""What the simulation makes of messages is what the wire makes of them."""

from __future__ import annotations

import pytest
from tests.scenarios.world import World, gang
from tests.sim.cluster import translate

from holdfast_agent.core.model.model import ExitReason, PlaceKey, RankEnd
from holdfast_agent.core.worker import events as ev
from holdfast_agent.shell.session import convert
from holdfast_controller.core.step import actions as act
from holdfast_controller.shell.convert import agent_messages

KEY = PlaceKey("a", "workerpool0-0")


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


@pytest.mark.parametrize(
    "report",
    [
        ev.Report(KEY, 1, 2, "PREPARED", 20001, 20002, 900),
        ev.Report(KEY, 1, 2, "RUNNING", shim_pid=900, ranks=((1, 1, 78), (0, 0, 77))),
        ev.Report(KEY, 1, 2, "CANNOT_PREPARE", message="no room", host_fault=True),
    ],
)
def test_reports_arrive_as_over_the_wire(report: ev.Report) -> None:
    assert translate.report(report) == agent_messages.report(convert.worker_report(report))


@pytest.mark.parametrize(
    "end",
    [
        RankEnd(0, 0, ExitReason.COMPLETED, end_time=5.0),
        RankEnd(0, 3 << 8, ExitReason.NONZERO_EXIT, "it raised", 5.0, ("Traceback", "ValueError: no")),
        RankEnd(0, 11 | 0x80, ExitReason.SIGNALED, end_time=5.0),
        RankEnd(0, None, ExitReason.LOST_REBOOT, "the host rebooted", 5.0),
    ],
)
def test_ends_arrive_as_over_the_wire(end: RankEnd) -> None:
    sent = ev.SendExit(7, KEY, 1, 2, end, port_taken=True)
    over_the_wire = agent_messages.exit_reported("host-0", 3, convert.exit_report(sent).exit_report)
    assert translate.from_agent("host-0", 3, sent) == over_the_wire


def test_hellos_arrive_as_over_the_wire() -> None:
    world = World(hosts=1)
    inventory = world.cluster.hosts["host-0"].inventory
    report = ev.Report(KEY, 1, 2, "EMPTY")
    found = translate.hello("host-0", 3, translate.Hello("10.0.0.0", "boot-1", inventory, (report,)))
    assert (found.host, found.session, found.boot_id) == ("host-0", 3, "boot-1")
    assert found.places == (agent_messages.report(convert.worker_report(report)),)
