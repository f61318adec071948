"""What an assignment says of the resources that are reserved for a worker."""

from __future__ import annotations

from holdfast_controller.core.assignments import Assignment, Phase
from holdfast_controller.core.model import ExitReason, Place
from holdfast_controller.shell import wire_agent

from .examples import GANG


def test_a_workers_reservation_goes_with_its_launch() -> None:
    said = []
    for member in (GANG.members[0], GANG.members[-1]):
        order = Assignment(
            1, "a", 1, 1, member, Place("h1", ()), GANG, Phase.PREPARE, ExitReason.STOPPED, 0, "", "{}", 10.0
        )
        launch = wire_agent.assignment(order).launch
        said.append((launch.cpu_count, launch.memory_mb))
    assert said == [(0, 0), (4, 100)]
