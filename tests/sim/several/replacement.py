"""Tries at two generations of one gang: it is placed anew while a controller of the past may keep its old work alive.

Each plan has a gang with ``STOP_AND_REPLACE``, one of whose hosts reaches only the controller that leads now, or none,
one way or both; and around that time this controller is cut from its database, stopped, killed or told to end, its
machine paused, or the database promoted. Whether the old ranks run when new ones start is an oracle of every world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from tests.sim.faults import Weights
from tests.sim.moves import Cut, Move, Submit
from tests.sim.several.plan import CUTS, Fault, SitePlan

from holdfast._base.job_file.choices import RestartScope
from holdfast_controller.core.model.gang import Gang, Pool, Retries, Task

LASTS_S = 260.0
"""A start, a fault, a lease of 60 s, the start elsewhere, and the return of the host."""
FAULT_S = 25.0
LEADER_FAULTS = (
    *("cut from the database", "cut from the database", "cut from the database"),
    *("stopped", "paused", "killed", "resigns"),
    *("database stands still", "promoted"),
)


@dataclass(frozen=True)
class ReplacementPlan(SitePlan):
    """Everything that decides a try."""

    target: ClassVar[str] = "sim-replaced"


def draw(seed: int) -> ReplacementPlan:
    """The plan of one try."""
    dice = random.Random(f"replacement {seed}")
    weights = replace(
        Weights(),
        latency_s=dice.choice([0.0005, 0.005, 0.1]),
        commit_slow=dice.choice([0.0, 0.05]),
        deaf=dice.choice([0.0, 0.5]),
        unkillable=dice.choice([0.0, 0.0, 0.1]),
    )
    rates = tuple(1.03 ** dice.uniform(-1.0, 1.0) for _ in range(4))
    workers = dice.choice([1, 2, 2])
    pool = Pool(1, Task(("train",)), processes=1, gpus=2)
    gang = Gang(
        (pool,) if workers == 1 else (pool, pool),
        timeout_s=86400.0,
        grace_s=dice.choice([1.0, 10.0, 30.0]),
        max_wait_s=86400.0,
        waits=True,
        replace_when_lost=True,
        retries=Retries(
            scope=dice.choice([RestartScope.GANG, RestartScope.WORKER]), job_retries=5, backoff_limit_s=30.0
        ),
    )
    host = f"host-{dice.randrange(workers)}"
    at_s = FAULT_S + dice.uniform(0.0, 5.0)
    for_s = dice.choice([0.5, 5.0, 30.0, 90.0, 120.0, 150.0]) * dice.uniform(0.7, 1.3)
    faults = [Fault(at_s, dice.choice(LEADER_FAULTS), for_s, way=dice.randrange(len(CUTS)))]
    moves: list[Move] = [Submit(1.0, "gang", gang, LASTS_S)]
    lost_s, gone_s = at_s + dice.uniform(-70.0, 6.0), dice.uniform(90.0, 180.0)
    if dice.random() < 0.7:
        faults.append(Fault(max(lost_s, at_s - 3.0), f"{host} reaches the leader alone", gone_s))
    else:
        up, down = dice.choice(CUTS)
        moves.append(Cut(max(lost_s, 8.0), (host,), up, down, gone_s, peers=dice.random() < 0.5))
    if dice.random() < 0.3:  # the one that took over is disturbed as well
        faults.append(
            Fault(at_s + dice.uniform(2.0, 80.0), dice.choice(LEADER_FAULTS), for_s, way=dice.randrange(3))
        )
    ordered = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return ReplacementPlan(
        seed,
        dice.getrandbits(64),
        weights,
        rates,
        1.0,
        LASTS_S,
        tuple(sorted(moves, key=lambda move: move.at_s)),
        probe=False,
        scripts=(),
        controller_rates=(1.03 ** dice.uniform(-1.0, 1.0), 1.0),
        faults=ordered,
    )
