"""Oracles of clusters with several controllers: terms are no plain count there, and a log may lose its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.oracles import Oracles, check

from holdfast._base.job_file.choices import RestartScope

if TYPE_CHECKING:
    from tests.sim.several.world import Site


class SiteOracles(Oracles):
    """Those of every world, and of terms that are no plain count."""

    world: Site

    def on_confirmed(self, epoch: int, host: str, came: float) -> None:
        later = [begun for other, begun in self.world.terms if other > epoch and begun <= came]
        check(not later, "1 one writer", f"epoch {epoch} answers what {host} said after a newer one had begun")

    def on_spawn(self, process: Any, env: dict[str, str]) -> None:
        if not self.world.set_back:
            super().on_spawn(process, env)
            return
        rank = process.key.job, process.generation, process.rank
        check(rank not in self.spawned, "2 one launch", f"{rank} is launched a second time")
        self.spawned.add(rank)
        gang = self.world.jobs.get(process.key.job)
        alone = gang is not None and gang.retries.scope is RestartScope.WORKER
        for other in self._of_job(process.key.job):
            if other.generation >= process.generation or (alone and other.key != process.key):
                continue
            what = f"{process.key} {process.generation} is launched while {other.key} {other.generation} still runs"
            check(self._is_fenced(other), "3 no overlap", what)

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_THE_LOG and object.__getattribute__(self, "world").set_back:
            return lambda *_: None
        return object.__getattribute__(self, name)


_OF_THE_LOG = frozenset(
    ("on_signal", "on_warned", "on_dropped", "on_forgotten", "on_answered", "on_cancelled", "on_isolated")
)
"""Oracles that compare with a log which has lost its end."""
