"""How a job ends, and what is left of it after that."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import NotificationEvent
from holdfast._session.reports import ExitReason
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.job_state import JobState


@dataclass(frozen=True, kw_only=True)
class PrimaryCompleted:
    """The primary worker completed; the others are stopped, after the end grace if there is one."""

    job_id: str
    at: Wall


@dataclass(frozen=True, kw_only=True)
class CancelRequested:
    """A user cancelled a job."""

    job_id: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class JobEnding:
    """A job's end was decided; ranks that still run are stopped."""

    job_id: str
    at: Wall
    outcome: JobState
    error: JobError | None = None
    stop_reason: ExitReason = ExitReason.STOPPED


@dataclass(frozen=True, kw_only=True)
class WorkerEmptied:
    """A worker is proven gone from its host, and nothing more of it will be started there."""

    job_id: str
    at: Wall
    worker: str


@dataclass(frozen=True, kw_only=True)
class WorkerFenced:
    """A worker was fenced: its shim's deadline or an admin assures that it is gone, though its host can't report it.

    Its share stays quarantined until the host proves it empty, unless an admin vouches for it.
    """

    job_id: str
    at: Wall
    worker: str
    vouched: bool = False


@dataclass(frozen=True, kw_only=True)
class OutputArchived:
    """A worker's output was copied to the base output directory, or ``problem`` says why it can't be."""

    job_id: str
    at: Wall
    worker: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class JobEnded:
    """A job reached its final state. ``error`` replaces the one of ``JobEnding``, if there is one."""

    job_id: str
    at: Wall
    state: JobState
    error: JobError | None = None


@dataclass(frozen=True, kw_only=True)
class NotificationGivenUp:
    """A notification of kind ``notice`` could not be delivered to ``to``."""

    job_id: str
    at: Wall
    notice: NotificationEvent
    to: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobDeleted:
    """A job that has ended was removed from all lists and answers, by a user or because it was kept long enough."""

    job_id: str
    at: Wall
    by: str
    with_output: bool = False
    """Its output on hosts is deleted too. Release 0.1 left it there."""
    why: str = ""
    """Why it was not kept any longer, where no user deleted it."""


@dataclass(frozen=True, kw_only=True)
class OutputDeleted:
    """A host has deleted what it had of a deleted job, or was removed itself."""

    job_id: str
    at: Wall
    host: str


@dataclass(frozen=True, kw_only=True)
class JobPurged:
    """Nothing of a deleted job is left on any host: all that is kept of it is that its id is taken."""

    job_id: str
    at: Wall
