"""An exit, and what follows of it: a restart in place, or another attempt."""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._session.reports import Exit, ExitReason
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.recovery import Budget, EndReason, Recover, Related


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure as budgets count it: its kind, whether the host may be at fault, and the progress before it.

    ``key`` tells whether it is the same again (see ``is_same``); empty where nothing failed, as in a drain, and for a
    hang. ``host`` is empty unless the host may be at fault.
    """

    key: str = ""
    budget: Budget = Budget.NONE
    host: str = ""
    progressed: bool = False
    step: float | None = None
    """Highest known step."""
    checkpoint: bool = False
    """A checkpoint was seen in this generation."""
    early: bool = False
    """The generation ended within minutes, and nothing was seen of it that is progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankExited:
    """A rank exited: its terminal record in its generation."""

    job_id: str
    at: Wall
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class LateExitFound:
    """An exit was reported of a rank whose terminal record was already written."""

    job_id: str
    at: Wall
    worker: str
    exit: Exit


@dataclass(frozen=True, kw_only=True)
class CauseFound:
    """Another rank turned out to have failed first, once all exits of the old generation were known."""

    job_id: str
    at: Wall
    generation: int
    """The generation that the recovery launches."""
    end_reason: EndReason
    related: Related
    failed_at: Wall
    charged: int | None = None
    key: str = ""
    """That of ``Failure``."""


@dataclass(frozen=True, kw_only=True)
class RestartDecided:
    """The gang restarts in place as ``generation``. ``charged`` is the worker whose budget is charged."""

    job_id: str
    at: Wall
    generation: int
    end_reason: EndReason
    related: Related
    stop_reason: ExitReason
    failed_at: Wall
    charged: int | None = None
    port_retry: bool = False
    hang_restarts: int | None = None
    """With a hang: restarts upon hangs in a row, this one included."""
    hang_step: float | None = None
    detect_s: float | None = None
    diagnose_s: float = 0.0
    failure: Failure | None = None
    not_before: Wall | None = None
    """Wall clock before which the next generation isn't launched."""
    worker: int | None = None
    """The worker that is relaunched alone; None: all are."""


@dataclass(frozen=True, kw_only=True)
class AttemptEnded:
    """An attempt is being ended: its workers are stopped, and the job is placed again, or pauses.

    ``keep`` names workers whose places are reserved for the next attempt, ``avoid`` the hosts to leave out if
    others are free. ``recover`` is None where no recovery follows (a pause).
    """

    job_id: str
    at: Wall
    leaving: Leaving
    end_reason: EndReason
    related: Related = field(default_factory=Related)
    failed_at: Wall = NEVER
    recover: Recover | None = None
    budget: Budget = Budget.NONE
    keep: tuple[int, ...] = ()
    avoid: tuple[str, ...] = ()
    stop_reason: ExitReason = ExitReason.STOPPED
    failure: Failure | None = None
    not_before: Wall | None = None
    hang_restarts: int | None = None
    hang_step: float | None = None
    detect_s: float | None = None
    diagnose_s: float = 0.0
    no_claim_before: Wall | None = None
    """Until then it starts only in turn and on free hosts: it gave way, or crashed soon after its start."""
