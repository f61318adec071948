"""Phases of a job: one frozen variant for each, with the data that only it has. Entering a phase constructs it.

``JobState`` is what users see. While a job ends it keeps the state that it ends from, and its phase is ``Ending``.
``kind`` tells the variants apart where they are stored.
"""

from __future__ import annotations

from typing import Literal

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.job_state import TERMINAL, JobState
from holdfast_controller.core.model.recovery import EndReason, Related


@dataclass(frozen=True, kw_only=True)
class Held:
    """The job waits for the ends of other jobs, then for its turn in its array; it has no place in the queue."""

    kind: Literal["HELD"] = "HELD"
    since: Wall
    unmet: tuple[Dependency, ...]
    """Those that have not ended."""
    missed: str = ""
    """Why it pauses: the dependency that can't be met any more, in words."""


@dataclass(frozen=True, kw_only=True)
class Queued:
    """The job waits for hosts."""

    kind: Literal["QUEUED"] = "QUEUED"
    since: Wall
    over_quota: bool = False
    """Its project's quota keeps it from starting."""
    quota_since: Wall | None = None
    """When the quota last began to suffice, after a time in which it didn't."""
    not_before: Wall | None = None
    """The earliest time of the next placement, after a back-off."""
    placement_attempts: int = 0
    """Placements of a job that doesn't wait for capacity that failed so far."""
    reserved: frozenset[int] = frozenset()
    """Workers of the last attempt whose allocation is kept for the next one."""
    excluded: frozenset[str] = frozenset()
    """Hosts that the next placement avoids if it can: the job failed there."""
    no_claim_before: Wall | None = None
    """Until then it starts only in turn and on free hosts: nothing is lent to it, and no job is stopped for it."""


@dataclass(frozen=True, kw_only=True)
class Leave:
    """A stop of which the ranks were warned: it comes at ``due`` (wall clock) unless all have exited before."""

    due: Wall
    end_reason: EndReason
    related: Related


@dataclass(frozen=True, kw_only=True)
class Loan:
    """A start out of turn: a job that waits ahead of it in the queue may take the GPUs back."""

    of: str
    """The first job that waited ahead of it then."""
    since: Wall


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The gang has hosts, and is being launched, runs, or is being stopped for a pause."""

    kind: Literal["PLACED"] = "PLACED"
    pause_due: Wall | None = None
    """Set once its ranks were warned of a pause: they are stopped at this time unless all have exited."""
    leave: Leave | None = None
    """Set once its ranks were warned of another stop."""
    loan: Loan | None = None
    """Set where it has started out of turn."""


@dataclass(frozen=True, kw_only=True)
class Paused:
    """The job waits for its user to resume it."""

    kind: Literal["PAUSED"] = "PAUSED"
    placement_attempts: int = 0
    excluded: frozenset[str] = frozenset()
    unmet: tuple[Dependency, ...] = ()
    """Jobs whose ends it waits for, once it is resumed."""
    missed: str = ""
    """Why it was paused: the dependency that can't be met any more, in words; empty where a user paused it."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The outcome is decided; the job has it once every worker is proven gone."""

    kind: Literal["ENDING"] = "ENDING"
    outcome: JobState
    error: JobError | None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Nothing more happens to the job."""

    kind: Literal["ENDED"] = "ENDED"
    outcome: JobState
    error: JobError | None
    at: Wall


DECIDED = (Ending, Ended)
"""Phases with an outcome. A tuple, since making a union at each look costs more than the look."""

JobPhase = Held | Queued | Placed | Paused | Ending | Ended

PHASES: dict[JobState, tuple[type, ...]] = {
    JobState.QUEUED: (Held, Queued, Ending),
    JobState.PENDING: (Placed, Ending),
    JobState.RUNNING: (Placed, Ending),
    JobState.PAUSED: (Paused, Ending),
    JobState.CANCELLING: (Ending,),
    **dict.fromkeys(TERMINAL, (Ended,)),
}
"""The phases that a job in each state may be in, between two steps."""
