"""Schedules and templates: jobs that are made later, part of the durable state.

A schedule keeps its job as it was accepted: what a template or a default was changed to since then changes nothing. A
run is decided, recorded and submitted in one step, so in one commit: after a crash either all of it is there, or none,
and then it is due still. ``settled`` is what makes it happen once: all that is due until then was decided.
"""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.gang import Gang


class Overlap(enum.Enum):
    """The fate of a run that is due while the job of an earlier one has not ended."""

    ALLOW = "ALLOW"
    """It starts beside it."""
    FORBID = "FORBID"
    """It is left out."""
    REPLACE = "REPLACE"
    """The earlier job is cancelled, and the new one runs after its end."""


@dataclass(frozen=True)
class JobPlan:
    """A job as its user wrote it and the shell read it, without an id: what is submitted, and a schedule keeps."""

    display_name: str
    gang: Gang
    spec_json: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    kms_key: str = ""
    indices: tuple[int, ...] = ()
    """Of an array, lowest first: a job is made for each. Empty for one job."""
    at_once: int = 0
    """Elements of the array that may have their turn at once; 0: all."""

    @property
    def count(self) -> int:
        """How many jobs are made of it."""
        return len(self.indices) or 1

    def running_as(self, account: str) -> JobPlan:
        """The same, as that account of its hosts."""
        return replace(self, gang=self.gang.running_as(account))


@dataclass
class Schedule:
    """A job that is submitted whenever ``cron`` is due in ``time_zone``. Wall-clock seconds."""

    project: str
    name: str
    owner: str
    cron: str
    time_zone: str
    overlap: Overlap
    deadline_s: float
    """A run that could not be made for longer than this is left out; 0: the newest one that was missed is made up."""
    plan: JobPlan
    created_at: Wall
    settled: Wall
    """All runs that were due until then were made or left out."""
    paused_by: str = ""
    """Who paused it; empty while it is active."""
    fired: int = 0
    fired_at: Wall = NEVER
    """The time that its last run was due at; NEVER before the first one."""
    job_ids: tuple[str, ...] = ()
    """Jobs (or arrays) of its last runs, and of earlier ones that the next has to wait for, newest last."""
    left_out: str = ""
    """Why the newest run that was due is not there; empty where it is."""


JOBS_KEPT = 10
"""Ids of runs that a schedule remembers, the newest ones, beside those that the next has to wait for."""


@dataclass(frozen=True)
class TemplateVersion:
    """A job file as JSON, and who made it when. It never changes."""

    job_json: str
    by: str
    at: Wall


@dataclass
class Template:
    """A job file with a name, in numbered versions."""

    project: str
    name: str
    owner: str
    """Who made its first version; only this user and the project's admins change it."""
    newest: int = 0
    versions: dict[int, TemplateVersion] = field(default_factory=dict)


def key_of(project: str, name: str) -> str:
    """The name of a schedule or template in the whole cluster."""
    return f"{project}/{name}"
