"""What agents say of a job's processes: what was started, and what is known only while this controller runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast._session.assignment import Rendezvous
from holdfast._session.reports import WorkerReport
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core.model.hang import Dump, Standstill


@dataclass(frozen=True)
class Started:
    """A worker whose ranks were started: pids in rank order."""

    shim_pid: int
    pids: tuple[int, ...]

    @classmethod
    def of(cls, report: WorkerReport) -> Started:
        """As a worker's report has it."""
        return cls(report.shim_pid, tuple(pid for _, pid in report.pids))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A place that is empty of older generations and ready for the current one."""

    port: int
    master_port: int


@dataclass
class Runtime:
    """What agents said of a job's current generation; they say it again after a restart of ours."""

    prepared: dict[int, Prepared] = field(default_factory=dict)
    started: dict[int, Started] = field(default_factory=dict)
    stuck: dict[int, str] = field(default_factory=dict)
    preparing: dict[int, str] = field(default_factory=dict)
    """What a worker's host is doing to make ready, where it takes long."""
    features: dict[int, WorkerFeatures] = field(default_factory=dict)
    """Newest vector of each worker, on our monotonic clock."""
    rendezvous: tuple[object, Rendezvous] | None = None
    """The job's own, and the same as hosts are told it."""
    dump: Dump | None = None
    dumps: int = 0
    counts: Standstill | None = None
    """Collective counts that the last dumps have found differing and frozen."""
    health: str = ""

    def forget(self, worker: int) -> None:
        """A worker starts anew: nothing that was said of it counts any more."""
        self.prepared.pop(worker, None)
        self.started.pop(worker, None)
        self.stuck.pop(worker, None)
        self.preparing.pop(worker, None)
        self.features.pop(worker, None)
