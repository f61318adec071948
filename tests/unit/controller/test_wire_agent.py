"""What an assignment says of a worker's resources, its deadline without us, and its warning."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.controller.examples import GANG

from holdfast._session.reports import ExitReason
from holdfast_controller.core.model.job import Place
from holdfast_controller.core.step.assignment import Assignment, Phase
from holdfast_controller.shell.convert import agent_messages


def test_a_workers_reservation_goes_with_its_launch() -> None:
    said = []
    for member in (GANG.members[0], GANG.members[-1]):
        order = Assignment(
            1, "a", 1, 1, member, Place("h1", ()), GANG, Phase.PREPARE, ExitReason.STOPPED, 0, "", "{}", 10.0
        )
        launch = agent_messages.assignment(order, 60.0).launch
        said.append((launch.cpu_count, launch.memory_mb))
    assert said == [(0, 0), (4, 100)]


def test_only_a_job_that_is_replaced_when_its_host_is_lost_ends_by_itself() -> None:
    member, place = GANG.members[0], Place("h1", ())
    kept = Assignment(1, "a", 1, 1, member, place, GANG, Phase.RUN, ExitReason.STOPPED, 0, "", "{}", 10.0)
    replaced = replace(kept, gang=replace(GANG, replace_when_lost=True))
    assert not agent_messages.assignment(kept, 60.0).HasField("fence")
    assert agent_messages.assignment(replaced, 60.0).fence.seconds == 60


def test_a_warning_goes_as_the_number_of_its_signal() -> None:
    member, place = GANG.members[0], Place("h1", ())
    order = Assignment(1, "a", 1, 1, member, place, GANG, Phase.RUN, ExitReason.STOPPED, 0, "", "{}", 10.0)
    assert agent_messages.assignment(order, 60.0).warn_signal == 0
    assert agent_messages.assignment(replace(order, warn_signal=10), 60.0).warn_signal == 10
