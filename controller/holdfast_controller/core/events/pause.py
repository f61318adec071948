"""A job gives up its hosts on purpose, or is warned that it will, and comes back."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.recovery import EndReason, Related


@dataclass(frozen=True, kw_only=True)
class PauseRequested:
    """A user paused a job: it releases its hosts and waits. Its ranks have until ``due`` (wall clock)."""

    job_id: str
    at: Wall
    by: str
    due: Wall | None = None


@dataclass(frozen=True, kw_only=True)
class JobWarned:
    """The ranks of a generation get the job's warning signal, ahead of ``until`` (wall clock).

    ``leaving``: the job leaves its hosts then, for that reason.
    """

    job_id: str
    at: Wall
    generation: int
    signal: int
    until: Wall
    why: str
    leaving: EndReason | None = None
    related: Related = field(default_factory=Related)


@dataclass(frozen=True, kw_only=True)
class MaintenanceAhead:
    """Maintenance was planned for a host that the job runs on, from ``start`` on (wall clock)."""

    job_id: str
    at: Wall
    host: str
    start: Wall
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobPaused:
    """A job is paused: no worker of it is left, and it holds nothing until it is resumed."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class JobResumed:
    """A paused job was resumed: it waits for hosts again."""

    job_id: str
    at: Wall
    by: str
