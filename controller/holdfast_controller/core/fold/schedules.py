"""Fold of schedules and templates: what is due next, and what a template's versions are."""

from __future__ import annotations

from typing import assert_never

from holdfast_controller.core.events import schedules as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.schedules import (
    JOBS_KEPT,
    Overlap,
    Schedule,
    Template,
    TemplateVersion,
    key_of,
)


def fold_planned(cluster: Cluster, event: ev.ScheduleEvent | ev.TemplateEvent) -> None:
    """Apply ``event`` to the schedules, or the templates."""
    kind = "template" if isinstance(event, ev.TemplateEvent) else "schedule"
    cluster.dirty_plans.add(f"{kind}/{key_of(event.project, event.name)}")
    if isinstance(event, ev.TemplateEvent):
        _fold_template(cluster, event)
    else:
        _fold_schedule(cluster, event)


def _fold_schedule(cluster: Cluster, event: ev.ScheduleEvent) -> None:
    key = key_of(event.project, event.name)
    if isinstance(event, ev.ScheduleCreated):
        cluster.schedules[key] = Schedule(
            project=event.project,
            name=event.name,
            owner=event.owner,
            cron=event.cron,
            time_zone=event.time_zone,
            overlap=event.overlap,
            deadline_s=event.deadline_s,
            plan=event.plan,
            created_at=event.at,
            settled=event.at,
        )
        return
    schedule = cluster.schedules[key]
    match event:
        case ev.ScheduleFired():
            schedule.settled = schedule.fired_at = event.due
            schedule.fired += 1
            schedule.left_out = ""
            schedule.job_ids = (*_kept(cluster, schedule), event.job_id)
        case ev.ScheduleLeftOut():
            schedule.settled, schedule.left_out = event.due, event.why
        case ev.SchedulePaused():
            schedule.paused_by = event.by
        case ev.ScheduleResumed():
            schedule.paused_by, schedule.settled = "", event.at
        case ev.ScheduleRemoved():
            del cluster.schedules[key]
        case _:
            assert_never(event)


def _kept(cluster: Cluster, schedule: Schedule) -> tuple[str, ...]:
    """Its newest runs, and those before them that still go on, where the next run has to wait for them."""
    older, newest = schedule.job_ids[: 1 - JOBS_KEPT], schedule.job_ids[1 - JOBS_KEPT :]
    if schedule.overlap is Overlap.ALLOW:
        return newest
    return (*filter(cluster.goes_on, older), *newest)


def _fold_template(cluster: Cluster, event: ev.TemplateEvent) -> None:
    key = key_of(event.project, event.name)
    match event:
        case ev.TemplateCreated():
            new = Template(project=event.project, name=event.name, owner=event.by)
            template = cluster.templates.setdefault(key, new)
            template.newest = event.version
            template.versions[event.version] = TemplateVersion(event.job_json, event.by, event.at)
        case ev.TemplateRemoved():
            del cluster.templates[key]
        case _:
            assert_never(event)
