"""What is done to a site with several controllers: a world's plan, and faults of controllers and their database."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from tests.sim import generator
from tests.sim.moves import Dies, Frozen, Submit
from tests.sim.plan import Plan

if TYPE_CHECKING:
    from tests.sim.several.world import Site

LONGEST_S = 200.0
CUTS = ((True, True), (True, False), (False, True))
ALONE = " reaches the leader alone"
"""After the name of a host: the kind of a fault."""


@dataclass(frozen=True)
class Fault:
    """Of a kind, at some time, for a while; ``machine`` is that of the leader where it is -1."""

    at_s: float
    kind: str
    for_s: float = 0.0
    machine: int = -1
    way: int = 0

    def make(self, site: Site) -> None:
        """Do it now."""
        leader = site.leader.machine if site.leader is not None else 0
        machine = leader if self.machine < 0 else self.machine
        process = site.processes.get(machine)
        if site.healed:
            return
        site.tell(f"{self.kind}, machine {machine}, {self.for_s:.1f} s")
        match self.kind:
            case "killed" if process is not None:
                process.die()
            case "resigns" if process is not None:
                process.resign()
            case "stopped" | "paused" if process is not None:
                site.pause(process, self.for_s, machine=self.kind == "paused")
            case "cut from the database":
                site.cut_database(machine, CUTS[self.way])
                site.engine.after(self.for_s, lambda: site.cut_database(machine, (False, False)))
            case "database restarts":
                site.restart_server(self.for_s)
            case "database stands still":
                site.frozen_server = True
                site.engine.after(self.for_s, lambda: setattr(site, "frozen_server", False))
            case "replica falls behind":
                site.replica_falls_behind()
            case "promoted":
                site.promote(self.for_s)
            case "wall clock set":
                site.clocks[machine].jumped += (-86400.0, -30.0, 86400.0)[self.way]
            case kind if kind.endswith(ALONE):
                site.reach_alone(kind.removesuffix(ALONE), machine, self.for_s)
            case _:
                pass  # nobody is there


@dataclass(frozen=True)
class SitePlan(Plan):
    """Everything that decides a run."""

    target: ClassVar[str] = "sim-site"

    controller_rates: tuple[float, ...] = (1.0, 1.0)
    faults: tuple[Fault, ...] = ()
    lossless: bool = True


KINDS = (
    "killed",
    "killed",
    "resigns",
    "stopped",
    "stopped",
    "paused",
    "cut from the database",
    "cut from the database",
    "database restarts",
    "database stands still",
    "promoted",
    "wall clock set",
)


def draw(seed: int) -> SitePlan:
    """The plan of a seed: that of a world with one controller, and what only several have."""
    plan, dice = generator.draw(seed), random.Random(f"site {seed}")
    lasts_s = min(plan.lasts_s, LONGEST_S)
    moves = tuple(
        move
        for move in plan.moves
        if move.at_s < lasts_s
        and not (isinstance(move, Dies) and move.what == "controller")
        and not (isinstance(move, Frozen) and not move.host)
    )
    rate = plan.controller_rate
    rates = tuple(
        rate if dice.random() < 0.5 else 2 - rate if 0.97 < rate < 1.03 else 1.0
        for _ in range(dice.choice([2, 2, 3]))
    )
    faults = [_fault(dice, len(rates), lasts_s) for _ in range(dice.choice([1, 4, 10, 20]))]
    lossless = dice.random() < 0.7
    if not lossless:
        busy = [move.at_s for move in moves if isinstance(move, Submit)] or [lasts_s / 2]
        at_s = max(1.0, dice.choice(busy) + dice.uniform(-5, 20))
        faults.append(Fault(at_s, "replica falls behind"))
        faults.append(Fault(at_s + dice.choice([0.5, 10.0, 40.0]), "promoted", dice.uniform(0.1, 3.0)))
    known = {field.name: getattr(plan, field.name) for field in fields(plan)}
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return SitePlan(
        **{**known, "moves": moves, "lasts_s": lasts_s}, controller_rates=rates, faults=ordered, lossless=lossless
    )


def _fault(dice: random.Random, machines: int, lasts_s: float) -> Fault:
    machine = -1 if dice.random() < 0.7 else dice.randrange(machines)
    for_s = dice.choice([0.3, 2.0, 5.0, 12.0, 40.0, 90.0]) * dice.uniform(0.7, 1.3)
    return Fault(dice.random() * lasts_s, dice.choice(KINDS), for_s, machine, dice.randrange(3))
