"""Which transitions were seen under which faults: (transition, fault) pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.sim.cluster.database import Record

from holdfast._session.reports import WorkerId
from holdfast_agent.core.worker.states import TRANSITIONS as WORKER_TRANSITIONS
from holdfast_agent.core.worker.states import StateKind
from holdfast_agent.core.worker.worker import Worker
from holdfast_controller.core.model.job_state import TRANSITIONS as JOB_TRANSITIONS

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

RECENT_S = 10.0
TRANSITIONS = sorted(
    [f"worker {a.name} > {b.name}" for a, following in WORKER_TRANSITIONS.items() for b in following]
    + [f"job {a.name} > {b.name}" for a, following in JOB_TRANSITIONS.items() for b in following]
)
FAULTS = sorted(
    [
        "agent crash",
        "agent frozen",
        "clock jump",
        "commit fails",
        "commit lands_unanswered",
        "controller crash",
        "controller frozen",
        "cut",
        "duplicate",
        "fence",
        "old epoch",
        "power loss",
        "reset",
        "shim crash",
        "slow",
        "unkillable",
    ]
)


class Coverage:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.reached: Counter[str] = Counter()
        self._faults: dict[str, float] = {}
        self._states: dict[str, str] = {}

    def fault(self, name: str) -> None:
        """It is at work now."""
        self._faults[name] = self.world.engine.now

    def of_log(self, record: Record) -> None:
        """An event of a job may have changed its state."""
        job = getattr(record.event, "job_id", None)
        if job is None:
            return
        before = self._states.get(job)
        if before is not None and before != record.state:
            self._count(f"job {before} > {record.state}")
        self._states[job] = record.state

    def of_workers(self, before: Mapping[WorkerId, StateKind], after: Mapping[WorkerId, Worker]) -> None:
        """A step of an agent may have moved places."""
        for key, worker in after.items():
            was = before.get(key)
            if was is not None and was is not worker.state.kind:
                self._count(f"worker {was.name} > {worker.state.kind.name}")

    def _count(self, transition: str) -> None:
        self.reached[transition] += 1
        since = self.world.engine.now - RECENT_S
        for name, at in self._faults.items():
            if at >= since:
                self.pairs[transition, name] += 1
