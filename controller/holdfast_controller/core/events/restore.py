"""Events of a restore from a backup, and of the orphaned workers that hosts report after it."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import Exit
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.runtime import Started


@dataclass(frozen=True, kw_only=True)
class ClusterRestored:
    """The log continues from a backup, at ``sequence``: later events are lost. Every host is unreconciled now.

    An event of the cluster. ``taken_at`` is when the backup was made, wall clock.
    """

    at: Wall
    sequence: int
    taken_at: Wall


@dataclass(frozen=True, kw_only=True)
class ReconciliationEnded:
    """Every host of the restored log has reported its workers, or was vouched for. An event of the cluster."""

    at: Wall


@dataclass(frozen=True, kw_only=True)
class JobFound:
    """A job's whole gang was reported by its hosts, perhaps at a newer generation than the restored log's.

    ``generations``, ``places`` and ``started`` are of each worker, in gang order.
    """

    job_id: str
    at: Wall
    attempt: int
    generations: tuple[int, ...]
    places: tuple[Place, ...]
    started: tuple[Started, ...]


@dataclass(frozen=True, kw_only=True)
class JobUnsure:
    """No whole gang of a job was reported. No generation that was ever launched is newer than ``generation``."""

    job_id: str
    at: Wall
    generation: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobCleared:
    """A job is reconciled: its hosts confirm the restored log, or its orphaned workers are gone."""

    job_id: str
    at: Wall
    reason: str


@dataclass(frozen=True, kw_only=True)
class OrphanFound:
    """A host runs a worker that the log doesn't place there; ``gpus`` are the UUIDs that are quarantined."""

    host: str
    at: Wall
    job: str
    worker: str
    generation: int
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OrphanExited:
    """A rank of an orphaned worker exited."""

    host: str
    at: Wall
    job: str
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class OrphanStopRequested:
    """An admin had the orphaned workers of a job stopped on a host."""

    host: str
    at: Wall
    job: str
    by: str


@dataclass(frozen=True, kw_only=True)
class OrphanGone:
    """An orphaned worker is gone from its host."""

    host: str
    at: Wall
    job: str
    worker: str


ClusterReconciliation = ClusterRestored | ReconciliationEnded
JobReconciliation = JobFound | JobUnsure | JobCleared
OrphanEvent = OrphanFound | OrphanExited | OrphanStopRequested | OrphanGone
