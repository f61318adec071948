"""The target of a call, by which its access rule is judged."""

from __future__ import annotations

from typing import Any

from holdfast_controller.core.access.rules import RULES, Target, Where
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.schedules import key_of
from holdfast_controller.shell.calls.audit_words import DEFAULT_PROJECT


def target_of(cluster: Cluster, method: str, request: Any) -> Target:
    """The job, secret, schedule or such that a request is about, as ``refusal`` takes it."""
    rule = RULES.get(method)
    if rule is None or request is None:
        return Target()
    match rule.where:
        case Where.NEW_JOB:
            return Target(project=request.job.project or DEFAULT_PROJECT)
        case Where.JOB | Where.OWN_JOB | Where.OWN_JOB_ONLY:
            array = cluster.arrays.get(request.id)
            job = cluster.jobs.head(request.id if array is None else array.first)
            if job is None or job.deleted:
                return Target(request.id)
            return Target(request.id, job.project, job.owner)
        case Where.PLAN:
            project = request.project or DEFAULT_PROJECT
            key = key_of(project, request.name)
            plan = cluster.templates.get(key) if "Template" in method else cluster.schedules.get(key)
            return Target(project=project, owner=plan.owner if plan is not None else None)
        case Where.SECRET | Where.OWN:
            everybodys = "*" if getattr(request, "all", False) else ""
            return Target(project=getattr(request, "project", ""), owner=everybodys or getattr(request, "user", ""))
        case _:
            return Target()
