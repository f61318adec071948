"""The life of one generation: it is prepared, launched and started, and gets on."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.goodput import Progress
from holdfast_controller.core.model.placement import Rendezvous
from holdfast_controller.core.model.runtime import Started


@dataclass(frozen=True, kw_only=True)
class PreparationNoted:
    """A host prepares a worker and is the first of the gang's hosts to begin a slow part of it."""

    job_id: str
    at: Wall
    worker: str
    host: str
    doing: str
    """The slow part, such as "installing requirements"."""


@dataclass(frozen=True, kw_only=True)
class GangLaunched:
    """A generation was launched: all workers were prepared, and from this commit on ranks may start."""

    job_id: str
    at: Wall
    generation: int
    rendezvous: Rendezvous


@dataclass(frozen=True, kw_only=True)
class GangStarted:
    """Every rank of a generation was started."""

    job_id: str
    at: Wall
    generation: int
    started: dict[int, Started]


@dataclass(frozen=True, kw_only=True)
class WorkerLaunched:
    """The deferred relaunch of one worker may begin."""

    job_id: str
    at: Wall
    worker: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class WorkerStarted:
    """The ranks of a worker that was relaunched alone were started."""

    job_id: str
    at: Wall
    worker: str
    generation: int
    started: Started


@dataclass(frozen=True, kw_only=True)
class WorldApart:
    """A worker's processes form a world of their own; the first worker of its generation of which that was seen."""

    job_id: str
    at: Wall
    generation: int
    worker: str
    processes: int
    """Ranks of that world."""


@dataclass(frozen=True, kw_only=True)
class ProgressRecorded:
    """The progress of a generation, as its agents reported it until the decision that ends it."""

    job_id: str
    at: Wall
    generation: int
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class CaughtUp:
    """A generation reached the step at which the job was before its last recovery."""

    job_id: str
    at: Wall
    generation: int
    step: float
