"""Commands about schedules and templates; see ``commands``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.schedules import JobPlan, Overlap


@dataclass(frozen=True)
class ScheduleAsked:
    """A user wants a job submitted whenever it is due."""

    token: int
    owner: str
    name: str
    cron: str
    time_zone: str
    overlap: Overlap
    deadline_s: float
    plan: JobPlan
    unseen: frozenset[str] = frozenset()
    """Jobs that it would run after and that the user may not see: they are refused as if they weren't there."""


@dataclass(frozen=True)
class SchedulePauseAsked:
    """A user pauses a schedule, or, with ``resume``, has it go on."""

    token: int
    by: str
    project: str
    name: str
    resume: bool = False


@dataclass(frozen=True)
class ScheduleRemovalAsked:
    """A user wants a schedule gone."""

    token: int
    by: str
    project: str
    name: str


@dataclass(frozen=True)
class TemplateAsked:
    """A user keeps a job file as the next version of a template; the shell has checked it."""

    token: int
    by: str
    project: str
    name: str
    job_json: str


@dataclass(frozen=True)
class TemplateRemovalAsked:
    """A user wants a template gone, with all its versions."""

    token: int
    by: str
    project: str
    name: str


ScheduleCommand = ScheduleAsked | SchedulePauseAsked | ScheduleRemovalAsked | TemplateAsked | TemplateRemovalAsked
