"""Agents' reports of a job's workers: the processes that were started, and facts kept only while we run."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.assignment import Rendezvous
from holdfast._session.reports import RankBinding, WorkerReport
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.goodput import ProgressWatch
from holdfast_controller.core.model.hang import Dump, Standstill
from holdfast_controller.core.model.slowness import SlowWatch


@dataclass(frozen=True)
class Started:
    """A worker whose ranks were started: pids in rank order."""

    shim_pid: int
    pids: tuple[int, ...]
    warm_ranks: int = 0
    """How many of them had their imports done before."""
    in_process_ranks: int = 0
    """How many of these went on in the process of the generation before."""
    bindings: tuple[tuple[int, RankBinding], ...] = ()
    """Rank and what it is bound to; without those whose job asks for no binding."""

    @property
    def warm(self) -> bool:
        """Whether all of them had."""
        return 0 < len(self.pids) <= self.warm_ranks

    @classmethod
    def of(cls, report: WorkerReport) -> Started:
        """The started processes that a worker's report lists."""
        pids = tuple(pid for _, pid in report.pids)
        return cls(report.shim_pid, pids, report.warm_ranks, report.in_process_ranks, report.bindings)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A place that is empty of older generations and ready for the current one."""

    port: int
    master_port: int


@dataclass
class Runtime:
    """Agents' reports of a job's current generation; they are sent again after a controller's restart."""

    prepared: dict[int, Prepared] = field(default_factory=dict)
    started: dict[int, Started] = field(default_factory=dict)
    stuck: dict[int, str] = field(default_factory=dict)
    preparing: dict[int, str] = field(default_factory=dict)
    """By worker: the slow part of its preparation that its host is in."""
    empty: set[int] = field(default_factory=set)
    """Workers that have ended by themselves, and of which nothing is left, while others went on."""
    warm: dict[int, str] = field(default_factory=dict)
    """By worker: what is prepared for a warm start of the next generation, or why nothing is."""
    features: dict[int, WorkerFeatures] = field(default_factory=dict)
    """Newest vector of each worker, on our monotonic clock."""
    rendezvous: tuple[object, Rendezvous] | None = None
    """The job's own rendezvous, and the same as hosts get it."""
    dump: Dump | None = None
    dumps: int = 0
    counts: Standstill | None = None
    """Collective counts that the last dumps have found differing and frozen."""
    health: str = ""
    progress: ProgressWatch | None = None
    """Of this generation, for the goodput ledger."""
    progress_kept_at: Mono | None = None
    """When it was last written down."""
    slow: SlowWatch = field(default_factory=SlowWatch)
    """The job's pace, and what is usual for its ranks; it goes on over generations."""

    def forget(self, worker: int) -> None:
        """Drop all reports of a worker that is relaunched."""
        self.prepared.pop(worker, None)
        self.started.pop(worker, None)
        self.stuck.pop(worker, None)
        self.preparing.pop(worker, None)
        self.empty.discard(worker)
        self.features.pop(worker, None)
