"""What projects have used, as an oracle of fair share adds it up: from hosts' allocations, by brute force."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster

Check = Callable[[bool, str, str], None]
NAME = "22 shares"


@dataclass
class SharesOracle:
    """The oracle of one log: the use of each project, brought from each event to the next."""

    check: Check
    used_s: dict[str, float] = field(default_factory=dict)
    held: Counter[str] = field(default_factory=Counter)
    at: float = 0.0
    backward: bool = False
    """The log's clock went back: from then on only the two folds are compared."""

    def take(self, event: ev.Event, whole: Cluster, restarted: Cluster) -> None:
        """Compare, after an event, the fold of all the log, the one from a snapshot on, and the sum."""
        self.check(
            whole.shares == restarted.shares,
            NAME,
            f"after a snapshot projects have used {restarted.shares} instead of {whole.shares}",
        )
        self.backward |= event.at < self.at
        lives = (event.at - self.at) * math.log(2) / whole.shares.half_life_s
        self.at = event.at
        for name in {*self.used_s, *self.held}:
            grown = self.held[name] * whole.shares.half_life_s / math.log(2) * (1.0 - math.exp(-lives))
            self.used_s[name] = self.used_s.get(name, 0.0) * math.exp(-lives) + grown
        self.held = Counter()
        for host in whole.hosts.values():
            for place, share in host.allocations.items():
                self.held[whole.jobs[place.rpartition("/")[0]].gang.project] += len(share.gpus)
        for name in () if self.backward else self.used_s:
            found = whole.shares.used_s(name, self.held[name], Wall(event.at))
            same = math.isclose(found, self.used_s[name], rel_tol=1e-6, abs_tol=0.01)
            self.check(same, NAME, f"{name} has used {found} GPU seconds, and held them for {self.used_s[name]}")
