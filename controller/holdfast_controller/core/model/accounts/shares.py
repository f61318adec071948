"""Fair share: what each project has used and holds of the GPUs, by its weight.

Theory of operation. What a project has used counts half after each half-life. Its *level* is what it will have used a
quarter of a half-life from now, should it hold until then what it holds now, for each unit of its weight: who has the
lowest level is served first. The past alone would give all that is free at one moment to one project; what is held now
alone would forget who had everything yesterday. Of projects that always have work, use goes to their weights.

What a project has used is a number of GPU-seconds as of a moment. It changes only with an event that changes what the
project holds, and what was held meanwhile follows from the formula below: so it is a fold of the log, bit by bit the
same after a restart. The half-life is part of that state, as an event brings each change of the setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.accounts.quota import Quota
from holdfast_controller.core.model.clock import NEVER, Wall

HALF_LIFE_S = 7 * 86_400.0
"""Unless the settings say otherwise."""
UNWEIGHTED = 1.0
"""The weight of a project that was given none."""
AHEAD = 0.25
"""Part of a half-life. The less, the faster old injustice is repaid, and the more use swings where jobs are long."""
FORGOTTEN_GPU_S = 1.0
"""A project that holds nothing and has used less is forgotten."""


@dataclass
class Used:
    """GPU-seconds that a project has used, as they count at a moment."""

    gpu_s: float
    as_of: Wall


@dataclass
class Shares:
    """Weights and use of projects, part of the durable state. Without any weight nothing is ordered by them."""

    weights: dict[str, float] = field(default_factory=dict)
    guarantees: dict[str, int] = field(default_factory=dict)
    """GPUs of each project that has a guarantee; see ``scheduling.fair_share.guarantees``."""
    quotas: dict[str, Quota] = field(default_factory=dict)
    """Limits that were set by command, by holder as in ``Quotas``; None in them: as the settings have it."""
    half_life_s: float = HALF_LIFE_S
    used: dict[str, Used] = field(default_factory=dict)
    at: Wall = field(default=NEVER, compare=False)
    """Levels are as of then: the time of the newest event, or of a later look at the queue."""

    def weight(self, project: str) -> float:
        """The project's own weight, or that of those that were given none."""
        return self.weights.get(project, UNWEIGHTED)

    def used_s(self, project: str, gpus: int, at: Wall) -> float:
        """The use of a project that has held ``gpus`` since its last change. A clock that went back adds nothing."""
        known = self.used.get(project)
        if known is None:
            return 0.0
        lives = max(at - known.as_of, 0.0) / self.half_life_s * math.log(2)
        return known.gpu_s * math.exp(-lives) + gpus * self._mean_life_s * -math.expm1(-lives)

    def charge(self, project: str, gpus: int, at: Wall) -> None:
        """Take in what a project has held since its last change, right before it changes again."""
        known = self.used.get(project)
        if known is None:
            self.used[project] = Used(0.0, at)
        elif known.as_of != at:
            known.gpu_s, known.as_of = self.used_s(project, gpus, at), at

    def level(self, project: str, gpus: int) -> float:
        """A project's use as it will be in a while, for each unit of its weight; who has less is served first."""
        return self._claim_s(project, gpus, self.at) / self.weight(project)

    def _claim_s(self, project: str, gpus: int, at: Wall) -> float:
        return self.used_s(project, gpus, Wall(at + AHEAD * self.half_life_s))

    @property
    def _mean_life_s(self) -> float:
        """One GPU that is held for ever comes to so many GPU-seconds."""
        return self.half_life_s / math.log(2)

    def states(self, held: Mapping[str, int], at: Wall) -> dict[str, ShareState]:
        """The state of projects that were given anything, have used anything, or are in ``held``: GPUs by project."""
        names = sorted({*self.weights, *self.guarantees, *self.used, *held})
        weights = sum(self.weight(name) for name in names)
        claims = {name: self._claim_s(name, held.get(name, 0), at) for name in names}
        whole = sum(claims.values())
        found = {}
        for name in names:
            share = self.weight(name) / weights
            gpus = held.get(name, 0)
            factor = 2.0 ** -(claims[name] / whole / share) if whole else 1.0
            found[name] = ShareState(share, self.used_s(name, gpus, at), gpus, factor)
        return found


@dataclass(frozen=True, slots=True)
class ShareState:
    """A project's share of the whole, what it has used and holds of it, and its factor.

    ``factor`` is 1 where it has nothing, 0.5 where it has just its share, and nears 0 with each share more; the
    highest is served first.
    """

    share: float
    used_s: float
    gpus: int
    factor: float
