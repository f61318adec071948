"""Events of schedules and templates; see ``events`` and ``model.schedules``."""

from __future__ import annotations

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.schedules import JobPlan, Overlap


@dataclass(frozen=True, kw_only=True)
class ScheduleCreated:
    """A user wants a job submitted whenever it is due, from now on."""

    project: str
    name: str
    at: Wall
    owner: str
    cron: str
    time_zone: str
    overlap: Overlap
    deadline_s: float
    plan: JobPlan


@dataclass(frozen=True, kw_only=True)
class ScheduleFired:
    """A run became a job, which the same commit holds. ``first_due``: runs from then on were missed before it."""

    project: str
    name: str
    at: Wall
    due: Wall
    job_id: str
    first_due: Wall


@dataclass(frozen=True, kw_only=True)
class ScheduleLeftOut:
    """Runs from ``first_due`` until ``due`` will not be made."""

    project: str
    name: str
    at: Wall
    due: Wall
    first_due: Wall
    why: str


@dataclass(frozen=True, kw_only=True)
class SchedulePaused:
    """Nothing is submitted until it is resumed."""

    project: str
    name: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class ScheduleResumed:
    """Runs that are due from now on are made again; those that were due meanwhile are not."""

    project: str
    name: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class ScheduleRemoved:
    """The schedule is no more. Its jobs go on."""

    project: str
    name: str
    at: Wall
    by: str


@dataclass(frozen=True, kw_only=True)
class TemplateCreated:
    """A template got its next version."""

    project: str
    name: str
    at: Wall
    version: int
    job_json: str
    by: str


@dataclass(frozen=True, kw_only=True)
class TemplateRemoved:
    """A template is no more. Jobs and schedules that were made of it have their own copies."""

    project: str
    name: str
    at: Wall
    by: str


ScheduleEvent = (
    ScheduleCreated | ScheduleFired | ScheduleLeftOut | SchedulePaused | ScheduleResumed | ScheduleRemoved
)
TemplateEvent = TemplateCreated | TemplateRemoved
