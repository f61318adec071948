"""Events of hangs; see ``events``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast.hang.judge.finding import Rule
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.recovery import RankName


@dataclass(frozen=True, kw_only=True)
class HangNoticed:
    """A job makes no progress, and its user is notified. ``since`` is the time of the last progress."""

    job_id: str
    at: Wall
    generation: int
    since: Wall
    rule: Rule
    sentence: str
    suspects: tuple[RankName, ...]
    hosts: tuple[str, ...]
    step: float | None = None
    acts_at: Wall | None = None
    """When it would be acted on, if it still hangs then; None where that is never."""


@dataclass(frozen=True, kw_only=True)
class HangDiagnosed:
    """The stack dumps of a noticed hang arrived. They may name other suspects than the notice did.

    ``rule``, ``sentence`` and ``since`` are set where the hang is found by another rule by now, or has other suspects.
    """

    job_id: str
    at: Wall
    stacks: str
    suspects: tuple[RankName, ...] = ()
    hosts: tuple[str, ...] = ()
    rule: Rule | None = None
    sentence: str = ""
    since: Wall | None = None


@dataclass(frozen=True, kw_only=True)
class HangJudged:
    """The action on a hang was decided; the outcome is never OVER or ENDED. ``rule`` etc. as in ``HangDiagnosed``."""

    job_id: str
    at: Wall
    outcome: HangOutcome
    note: str = ""
    suspects: tuple[RankName, ...] = ()
    hosts: tuple[str, ...] = ()
    rule: Rule | None = None
    sentence: str = ""
    since: Wall | None = None


@dataclass(frozen=True, kw_only=True)
class HangStuck:
    """A hang's restart waits for a host whose processes survive KILL. ``why`` is the host's message."""

    job_id: str
    at: Wall
    worker: str
    host: str
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class HangOver:
    """A job with a noticed hang makes progress again."""

    job_id: str
    at: Wall
    note: str


@dataclass(frozen=True, kw_only=True)
class JobHeld:
    """A user suspended action on hangs; ``until`` None ends that."""

    job_id: str
    at: Wall
    by: str
    until: Wall | None


@dataclass(frozen=True, kw_only=True)
class CommonCauseNoticed:
    """Several jobs, or several hosts of one job, hang for a common cause. An event of the cluster."""

    at: Wall
    sentence: str
    jobs: tuple[str, ...]
    mount: str = ""
    """The storage that they wait for, if it is that."""
    hosts: tuple[str, ...] = ()
    """Those that wait for it, else those that all of the jobs share."""
