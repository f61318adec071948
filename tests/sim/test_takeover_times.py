"""How long users stay with a controller that leads no more, in virtual time and with the controllers' own code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sim.faults import Weights
from tests.sim.moves import OfHost
from tests.sim.several.plan import CUTS, Fault, SitePlan
from tests.sim.several.postgres import Server
from tests.sim.several.process import Process
from tests.sim.several.world import Site

AT_S = 20.0
PHASES_S = (0.0, 0.2, 0.4)
"""Of the fault, between two beats of the controller that leads."""


class Watched(Site):
    """Notes when controllers end and begin to lead, in seconds after the fault."""

    def __init__(self, fault: Fault, *before: Fault) -> None:
        self.fault = fault
        self.ended: list[float] = []
        self.led: list[float] = []
        calm = (1.0, 1.0, 1.0)
        plan = SitePlan(1, 1, Weights(), calm, 1.0, AT_S + 30.0, moves=(), probe=False, faults=(*before, fault))
        super().__init__(plan)

    def controller_died(self, controller: Any) -> None:
        super().controller_died(controller)
        self._note(self.ended)

    def on_leads(self, process: Process) -> None:
        super().on_leads(process)
        self._note(self.led)

    def _note(self, times: list[float]) -> None:
        if self.engine.now > self.fault.at_s:
            times.append(self.engine.now - self.fault.at_s)


def carried_out(kind: str, phase_s: float, for_s: float, way: int = 0) -> Watched:
    site = Watched(Fault(AT_S + phase_s, kind, for_s, way=way))
    site.run()
    return site


@pytest.mark.parametrize("way", range(len(CUTS)))
@pytest.mark.parametrize("phase_s", PHASES_S)
def test_a_leader_that_is_cut_off_from_its_database_lets_its_users_go_once_another_may_lead(
    way: int, phase_s: float
) -> None:
    site = carried_out("cut from the database", phase_s, 12.0, way)
    assert site.led[0] < 2.6, "two seconds without a sign of life"
    assert site.ended[0] < 2.6, "and no longer does the old one keep its users"


def test_a_leader_that_is_cut_off_while_the_one_before_it_comes_back_lets_its_users_go_as_soon() -> None:
    """It has seen no standby yet, but has taken the place of a controller that will soon be one."""
    site = Watched(Fault(AT_S + 2.0, "cut from the database", 20.0), Fault(AT_S, "killed"))
    site.run()
    assert site.ended[0] < 2.6
    assert site.led[0] < 6.0, "three seconds until it is there, and a term"


@pytest.mark.parametrize("for_s", [0.5, 3.0])
def test_a_server_that_restarts_keeps_its_controller(for_s: float) -> None:
    """What refuses is there: no other controller can lead before it is back."""
    site = carried_out("database restarts", PHASES_S[1], for_s)
    assert (site.led, site.ended) == ([], [])


@pytest.mark.parametrize("phase_s", PHASES_S)
def test_a_leader_that_was_killed_is_replaced_within_a_second(phase_s: float) -> None:
    assert carried_out("killed", phase_s, 0.0).led[0] < 1.3


class Busy(Site):
    """An admin changes something four times a second; counts the transactions that hold nothing but a sign of life."""

    def __init__(self) -> None:
        changes = (OfHost(AT_S + n / 4, ("cordon", "uncordon")[n % 2], "host-0") for n in range(80))
        plan = SitePlan(1, 1, Weights(), (1.0, 1.0), 1.0, AT_S + 60.0, moves=tuple(changes), probe=False)
        self.signs_of_life: list[float] = []
        super().__init__(plan)

    def landed(self, process: Process, server: Server, changes: dict[str, Any]) -> None:
        super().landed(process, server, changes)
        if set(changes) == {"beat"}:
            self.signs_of_life.append(self.engine.now)


def test_who_leads_gives_a_sign_of_life_twice_a_second_and_no_oftener_after_it_was_busy() -> None:
    site = Busy()
    site.run()
    after = [at_s for at_s in site.signs_of_life if AT_S + 30.0 < at_s <= AT_S + 60.0]
    assert 30 <= len(after) <= 75, "twice a second, and each heartbeat of two hosts"
