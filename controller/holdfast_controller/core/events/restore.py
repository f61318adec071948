"""Events of a restore from a backup, and of what hosts turn out to hold that the restored log knows nothing of."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast._session.reports import Exit
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.host import Place
from holdfast_controller.core.model.runtime import Started


@dataclass(frozen=True, kw_only=True)
class ClusterRestored:
    """The log goes on from a backup, at ``sequence``: what came between is lost. Every host is in doubt now.

    An event of the cluster. ``taken_at`` is when the backup was made, wall clock.
    """

    at: Wall
    sequence: int
    taken_at: Wall


@dataclass(frozen=True, kw_only=True)
class ReconciliationEnded:
    """Every host of the restored log has said what it holds, or was vouched for. An event of the cluster."""

    at: Wall


@dataclass(frozen=True, kw_only=True)
class JobFound:
    """A job's hosts have told where it stands, which may be further than the restored log knew.

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
    """No host can say where a job stands. ``generation``: nothing that it ever launched is newer than that."""

    job_id: str
    at: Wall
    generation: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobCleared:
    """A job goes on as the log has it: its hosts confirm that, or nothing is left of what the log didn't know."""

    job_id: str
    at: Wall
    reason: str


@dataclass(frozen=True, kw_only=True)
class OrphanFound:
    """A host runs a worker that the log doesn't place there. What it holds is withheld; ``gpus`` are UUIDs."""

    host: str
    at: Wall
    job: str
    worker: str
    generation: int
    gpus: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OrphanExited:
    """How a rank ended that the log doesn't know."""

    host: str
    at: Wall
    job: str
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class OrphanStopRequested:
    """An admin has work stopped of which nobody knows whose it is."""

    host: str
    at: Wall
    job: str
    by: str


@dataclass(frozen=True, kw_only=True)
class OrphanGone:
    """Nothing is left of such a worker."""

    host: str
    at: Wall
    job: str
    worker: str


ClusterReconciliation = ClusterRestored | ReconciliationEnded
JobReconciliation = JobFound | JobUnsure | JobCleared
OrphanEvent = OrphanFound | OrphanExited | OrphanStopRequested | OrphanGone
