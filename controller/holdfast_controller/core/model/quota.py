"""Quotas: how much of the cluster the jobs of one project may hold at once.

What counts is what is held: a job's share from its placement until its host has proven it empty, and what is kept
for its next attempt. A job that waits for its project's quota delays no job outside the project; inside,
those behind it can't use what it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_controller.core.model.gang import Gang

ANY_PROJECT = "*"
"""The quota of projects that have none of their own."""


@dataclass(frozen=True)
class Quota:
    """Limits of a project; None: none, but for ``waiting_jobs``, which has a default.

    ``running_jobs`` counts jobs that hold anything, ``waiting_jobs`` those in the queue.
    """

    gpus: int | None = None
    running_jobs: int | None = None
    waiting_jobs: int | None = None


Quotas = Mapping[str, Quota]
"""By project."""


def quota_of(quotas: Quotas, project: str) -> Quota | None:
    """The limits of a project, its own or everybody's; None where it has none."""
    return quotas.get(project) or quotas.get(ANY_PROJECT)


@dataclass
class Use:
    """GPUs and running jobs that a project holds."""

    gpus: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    """Shares that each of its jobs holds."""


@dataclass
class Holdings:
    """Holdings by project and job; ``fold`` keeps them in step with the hosts' allocations."""

    by_project: dict[str, Use] = field(default_factory=dict)
    gpus_by_job: dict[str, int] = field(default_factory=dict)

    def take(self, project: str, job_id: str, gpus: int) -> None:
        """One share more is held."""
        use = self.by_project.setdefault(project, Use())
        use.gpus += gpus
        use.jobs[job_id] = use.jobs.get(job_id, 0) + 1
        self.gpus_by_job[job_id] = self.gpus_by_job.get(job_id, 0) + gpus

    def give_back(self, project: str, job_id: str, gpus: int) -> None:
        """One share less is held."""
        use = self.by_project[project]
        use.gpus -= gpus
        self.gpus_by_job[job_id] -= gpus
        use.jobs[job_id] -= 1
        if not use.jobs[job_id]:
            del use.jobs[job_id]
            del self.gpus_by_job[job_id]
        if not use.jobs:
            del self.by_project[project]


@dataclass(slots=True)
class Ahead:
    """GPUs and jobs that a project's jobs ahead of another one wait for."""

    gpus: int = 0
    jobs: int = 0

    def charge(self, gang: Gang, held: int | None) -> None:
        """Count a job that goes on waiting; ``held`` are GPUs that it holds already, None where it holds nothing."""
        self.gpus += max(gang.gpus - (held or 0), 0)
        self.jobs += held is None


_NO_USE, _NONE_AHEAD = Use(), Ahead()


def lack(quotas: Quotas, holdings: Holdings, job_id: str, gang: Gang, ahead: Ahead = _NONE_AHEAD) -> str:
    """Why the quota of its project lets a job not start now; empty when it does.

    ``ahead`` is of the job's own project.
    """
    quota = quota_of(quotas, gang.project)
    if quota is None:
        return ""
    use = holdings.by_project.get(gang.project, _NO_USE)
    others = use.gpus - holdings.gpus_by_job.get(job_id, 0)
    if quota.gpus is not None and gang.gpus and others + ahead.gpus + gang.gpus > quota.gpus:
        waited = f", jobs ahead wait for {ahead.gpus} more" if ahead.gpus else ""
        used = f"project {gang.project} uses {others} of its {quota.gpus} GPUs"
        return f"over quota: {used}{waited}; this job needs {gang.gpus}"
    running = len(use.jobs) - (job_id in use.jobs)
    if quota.running_jobs is not None and running + ahead.jobs + 1 > quota.running_jobs:
        waited = f", and {ahead.jobs} wait ahead of this one" if ahead.jobs else ""
        return f"over quota: project {gang.project} runs {running} of its {quota.running_jobs} jobs{waited}"
    return ""


def never(quotas: Quotas, gang: Gang) -> str:
    """Why a job could not start even if its project held nothing; empty when it could."""
    quota = quota_of(quotas, gang.project)
    if quota is None:
        return ""
    if quota.gpus is not None and gang.gpus > quota.gpus:
        return f"the job needs {gang.gpus} GPUs, and project {gang.project} may hold no more than {quota.gpus}"
    if quota.running_jobs == 0:
        return f"project {gang.project} may run no jobs"
    return ""
