"""What is done to a world and how hostile it is: drawn from one seed, shrunk and repeated as it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tests.sim.cluster.programs import Script
from tests.sim.faults import Weights
from tests.sim.moves import Move


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run, but for the code. ``dice`` seeds what is drawn on the way."""

    target: ClassVar[str] = "sim"
    """Of ``make``, which draws such plans."""

    seed: int
    dice: int
    weights: Weights
    rates: tuple[float, ...]
    """How fast each host's clock runs; their number is that of the hosts."""
    controller_rate: float
    lasts_s: float
    """Until everything is healed."""
    moves: tuple[Move, ...]
    gpus: int = 2
    """Of each host."""
    has_epilog: bool = False
    probe: bool = True
    scripts: tuple[tuple[str, int, Script], ...] = ()
    """(job, generation, how it goes), where that isn't drawn."""
