"""Quotas: how much of the cluster the jobs of one project, or of one user, may hold at once.

What counts is what is held: a job's share from its placement until its host has proven it empty, and what is kept
for its next attempt. A job counts for two holders, its project and its owner. One that waits for the quota of either
delays no job of others; of the same holder, those behind it can't use what it waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.plural import count
from holdfast._base.projects import EVERY_PROJECT
from holdfast_controller.core.model.gang import Gang

USER = "user/"
"""Begins the key of a user's quota; no project has such a name."""


@dataclass(frozen=True)
class Quota:
    """Limits of a holder, and the keys of ``[quotas.PROJECT]`` and ``[user_quotas.NAME]``; None is no limit."""

    gpus: int | None = None
    """GPUs that their jobs hold together."""
    running_jobs: int | None = None
    """Jobs that hold anything."""
    waiting_jobs: int | None = None
    """Jobs in the queue. Without it 50,000 of a project, and ``waiting_jobs_per_user`` of a user."""
    max_priority: int | None = None
    """Highest ``priority`` that a job may ask for: 1 to 3."""


UNLIMITED = -1
"""Of a limit that was set by command: none, whatever the settings say."""


def merged(settings: Quotas, set_: Mapping[str, Quota]) -> Quotas:
    """The quotas that count: those of the settings, with what was set by command in place of it, limit by limit.

    Who has some set by command and no table in the settings has else the limits of everybody.
    """
    if not set_:
        return settings
    found = dict(settings)
    for holder, own in set_.items():
        found[holder] = _over(quota_of(settings, holder) or Quota(), own)
    return found


def _over(before: Quota, own: Quota) -> Quota:
    limits = {}
    for name in ("gpus", "running_jobs", "waiting_jobs", "max_priority"):
        limit = getattr(own, name)
        limits[name] = getattr(before, name) if limit is None else None if limit == UNLIMITED else limit
    return Quota(**limits)


Quotas = Mapping[str, Quota]
"""By holder: a project's name, or ``user/NAME``."""


def holders(owner: str, gang: Gang) -> tuple[str, str]:
    """The keys of the quotas that a job counts for."""
    return gang.project, USER + owner


def quota_of(quotas: Quotas, holder: str) -> Quota | None:
    """The limits of a holder, its own or everybody's; None where it has none."""
    return quotas.get(holder) or quotas.get(USER + EVERY_PROJECT if holder.startswith(USER) else EVERY_PROJECT)


def _limits(quotas: Quotas, owner: str, gang: Gang) -> Iterator[tuple[str, str, Quota]]:
    """Holder, its name in words and its quota, for those of a job that have one."""
    for holder in holders(owner, gang):
        quota = quota_of(quotas, holder)
        if quota is not None:
            yield holder, f"user {owner}" if holder.startswith(USER) else f"project {holder}", quota


def limited(quotas: Quotas) -> Callable[[str, str], bool]:
    """Whether a limit on what is held counts for jobs of a project and an owner."""
    known: dict[tuple[str, str], bool] = {}

    def is_limited(project: str, owner: str) -> bool:
        found = known.get((project, owner))
        if found is None:
            both = (quota_of(quotas, holder) for holder in (project, USER + owner))
            found = any(each is not None and (each.gpus, each.running_jobs) != (None, None) for each in both)
            known[project, owner] = found
        return found

    return is_limited


@dataclass
class Use:
    """GPUs and running jobs that a holder holds."""

    gpus: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    """Shares that each of its jobs holds."""


@dataclass
class Holdings:
    """Holdings by holder and job; ``fold`` keeps them in step with the hosts' allocations."""

    by_holder: dict[str, Use] = field(default_factory=dict)
    gpus_by_job: dict[str, int] = field(default_factory=dict)

    def gpus_of(self, holder: str) -> int:
        """The GPUs that a holder holds."""
        use = self.by_holder.get(holder)
        return use.gpus if use is not None else 0

    def take(self, owner: str, gang: Gang, job_id: str, gpus: int) -> None:
        """One share more is held."""
        for holder in holders(owner, gang):
            use = self.by_holder.setdefault(holder, Use())
            use.gpus += gpus
            use.jobs[job_id] = use.jobs.get(job_id, 0) + 1
        self.gpus_by_job[job_id] = self.gpus_by_job.get(job_id, 0) + gpus

    def give_back(self, owner: str, gang: Gang, job_id: str, gpus: int) -> None:
        """One share less is held."""
        self.gpus_by_job[job_id] -= gpus
        for holder in holders(owner, gang):
            use = self.by_holder[holder]
            use.gpus -= gpus
            use.jobs[job_id] -= 1
            if not use.jobs[job_id]:
                del use.jobs[job_id]
                self.gpus_by_job.pop(job_id, None)
            if not use.jobs:
                del self.by_holder[holder]


@dataclass(slots=True)
class Ahead:
    """GPUs and jobs that a holder's jobs ahead of another one wait for."""

    gpus: int = 0
    jobs: int = 0


class Waiting:
    """By holder: what its jobs wait for that a pass over the queue has come by so far."""

    def __init__(self) -> None:
        self.ahead: defaultdict[str, Ahead] = defaultdict(Ahead)

    def charge(self, owner: str, gang: Gang, held: int | None) -> None:
        """Count a job that goes on waiting; ``held`` are GPUs that it holds already, None where it holds nothing."""
        for holder in holders(owner, gang):
            ahead = self.ahead[holder]
            ahead.gpus += max(gang.gpus_held - (held or 0), 0)
            ahead.jobs += held is None


_NO_USE, _NONE_AHEAD = Use(), Ahead()


def lack(
    quotas: Quotas, holdings: Holdings, job_id: str, owner: str, gang: Gang, waiting: Waiting | None = None
) -> str:
    """Why a quota, of its project or its owner, lets a job not start now; empty when both do."""
    if not quotas:
        return ""
    for holder, name, quota in _limits(quotas, owner, gang):
        use = holdings.by_holder.get(holder, _NO_USE)
        ahead = _NONE_AHEAD if waiting is None else waiting.ahead.get(holder, _NONE_AHEAD)
        others = use.gpus - holdings.gpus_by_job.get(job_id, 0)
        if quota.gpus is not None and gang.gpus and others + ahead.gpus + gang.gpus_held > quota.gpus:
            waited = f", jobs ahead wait for {ahead.gpus} more" if ahead.gpus else ""
            used = f"{name} uses {others} of its {quota.gpus} GPUs"
            return f"over quota: {used}{waited}; this job needs {gang.gpus_held}"
        running = len(use.jobs) - (job_id in use.jobs)
        if quota.running_jobs is not None and running + ahead.jobs + 1 > quota.running_jobs:
            waited = f", and {ahead.jobs} wait ahead of this one" if ahead.jobs else ""
            return f"over quota: {name} runs {running} of its {quota.running_jobs} jobs{waited}"
    return ""


def is_beyond(quotas: Quotas, owner: str, gang: Gang) -> bool:
    """Whether a quota, lowered since, never lets a job start: it keeps nothing of the quota from those behind it."""
    if not quotas:
        return False
    limits = [quota for _, _, quota in _limits(quotas, owner, gang)]
    large = any(quota.gpus is not None and gang.gpus and gang.gpus_held > quota.gpus for quota in limits)
    return large or any(quota.running_jobs == 0 for quota in limits)


def never(quotas: Quotas, owner: str, gang: Gang) -> tuple[str, str]:
    """(field, problem) of a job that could not start even if nothing were held; both empty when it could."""
    for _, name, quota in _limits(quotas, owner, gang):
        if quota.gpus is not None and gang.gpus_held > quota.gpus:
            problem = f"the job needs {count(gang.gpus_held, 'GPU')}, and {name} may hold no more than {quota.gpus}"
            return "jobSpec.workerPoolSpecs", problem
        if quota.running_jobs == 0:
            return "jobSpec.workerPoolSpecs", f"{name} may run no jobs"
        if quota.max_priority is not None and gang.priority > quota.max_priority:
            problem = f"{gang.priority} is above {quota.max_priority}, the highest that {name} may use"
            return "jobSpec.scheduling.priority", problem
    return "", ""
