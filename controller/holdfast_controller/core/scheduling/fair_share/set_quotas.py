"""Quotas that admins set by command, in place of those of the settings; see ``model.accounts.quota``.

They are part of the state, so they count at once, without a reload, and after a restart. A limit that was not set by
command is that of the settings, and follows these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from holdfast._base import identity, projects
from holdfast._base.dataclass import dataclass, replace
from holdfast.errors import InvalidInput, Violation
from holdfast_controller.core.events.shares import QuotaSet
from holdfast_controller.core.model.accounts.quota import UNLIMITED, USER, Quota, Quotas
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.share_commands import QuotaAsked
from holdfast_controller.core.step.step import Step

MOST = 10_000
"""Holders with limits that were set by command."""
_MOST_OF = {"gpus": 1_000_000, "running_jobs": 1_000_000, "waiting_jobs": 1_000_000, "max_priority": 3}
_LEAST_OF = {"max_priority": 1}


def on_quota(step: Step, asked: QuotaAsked) -> None:
    """Set limits of a holder, or take them back. What waits for a quota that was raised starts at once."""
    known = step.cluster.shares.quotas
    if wrong := _violations(step.cluster, step.policies.quotas, asked):
        step.do(Refuse(asked.token, InvalidInput(wrong)))
        return
    before = Quota() if asked.clear else known.get(asked.holder, Quota())
    given = {name: limit for name in _MOST_OF if (limit := getattr(asked.limits, name)) is not None}
    after = replace(before, **given)
    new = after if after != Quota() else None
    if known.get(asked.holder) != new:
        step.emit(QuotaSet(at=step.now.wall, holder=asked.holder, quota=new, by=asked.by))
        step.capacity_freed = True
    step.do(Reply(asked.token, asked.holder))


def _violations(cluster: Cluster, quotas: Quotas, asked: QuotaAsked) -> list[Violation]:
    found, name = [], asked.holder.removeprefix(USER)
    is_user = asked.holder.startswith(USER)
    if is_user and name != projects.EVERY_PROJECT and not identity.is_name(name):
        found.append(
            Violation("user", f"{name[:60]!r} is no user's name", "such as ann, or * for each without one")
        )
    if not is_user and name != projects.EVERY_PROJECT and not projects.is_project(name):
        found.append(Violation("project", f"must {projects.MUST}", "such as vision, or * for each without one"))
    given = [limit for limit in _MOST_OF if getattr(asked.limits, limit) is not None]
    if not given and not asked.clear:
        found.append(
            Violation("limits", "has none", "set gpus, runningJobs, waitingJobs or maxPriority, or clear them")
        )
    for limit in given:
        value, least, most = getattr(asked.limits, limit), _LEAST_OF.get(limit, 0), _MOST_OF[limit]
        if value != UNLIMITED and not least <= value <= most:
            field = f"limits.{limit.split('_')[0]}{limit.partition('_')[2].title()}"
            found.append(Violation(field, f"is {value}", f"use {least} to {most:,}, or {UNLIMITED} for no limit"))
    gpus, everybodys = asked.limits.gpus, asked.holder == projects.EVERY_PROJECT
    for project, guaranteed in sorted(cluster.shares.guarantees.items()):
        counts = project not in quotas if everybodys else project == asked.holder
        if counts and gpus is not None and 0 <= gpus < guaranteed:
            fix = f"guarantee it less first: holdfast share set {project} --guarantee {gpus}"
            if everybodys:
                fix += (
                    f", or give it a quota of its own: holdfast quota set --project {project} --gpus {guaranteed}"
                )
            problem = f"is {gpus}, and {guaranteed} GPUs are guaranteed to {project}"
            found.append(Violation("limits.gpus", problem, fix))
            break
    if asked.holder not in cluster.shares.quotas and len(cluster.shares.quotas) >= MOST:
        found.append(Violation("", f"{MOST:,} projects and users have quotas set by command", "clear some"))
    return found


@dataclass(frozen=True, slots=True)
class QuotaState:
    """A holder, its limits as they count, those set by command, and what it has now."""

    holder: str
    limits: Quota
    by_command: Quota | None
    gpus: int
    running: int
    waiting: int


def quota_states(cluster: Cluster, quotas: Quotas, sees: Callable[[str], bool]) -> list[QuotaState]:
    """The holders that have limits and that the caller ``sees``: projects first, by name."""
    waiting = Counter[str]()
    for job in map(cluster.jobs.whole.__getitem__, cluster.queue):
        waiting.update((job.gang.project, USER + job.owner))
    found = []
    for holder in sorted((name for name in quotas if sees(name)), key=lambda name: (name.startswith(USER), name)):
        use, own = cluster.holdings.by_holder.get(holder), cluster.shares.quotas.get(holder)
        gpus, running = (use.gpus, len(use.jobs)) if use is not None else (0, 0)
        found.append(QuotaState(holder, quotas[holder], own, gpus, running, waiting[holder]))
    return found
