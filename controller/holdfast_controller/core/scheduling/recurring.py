"""Schedules: jobs that are submitted whenever a cron expression is due.

Theory of operation. One timer is armed for the earliest run of all schedules, and for a minute from now at the latest,
so that a wall clock that was set is noticed. When a run is due, its event and its job come from the same step, hence
from one commit: a controller that is killed has made both or neither, and the next one finds the run due still. Of
several that were missed the newest one alone is made up. A run that can't be made says why, and is not tried again:
what holds it back is a limit, a right that was taken away, or a job of before.

After a restore nothing is submitted before the hosts have said what they run: a run may have been made since the
backup. Its work is an orphan then, and counts as an earlier run.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import assert_never

from holdfast._base import cron, projects
from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import DependencyEnd
from holdfast.errors import HoldfastError, InvalidInput, NotFound, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.access.rules import Registry
from holdfast_controller.core.events.access import holder_in_words
from holdfast_controller.core.lifecycle.dependencies import never_met, unseen
from holdfast_controller.core.lifecycle.stop import cancel
from holdfast_controller.core.model.accounts.users import Role, role_in
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.schedules import Overlap, Schedule, key_of
from holdfast_controller.core.scheduling.submit import make, seek_hosts
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import JobSubmission
from holdfast_controller.core.step.lookup import reconciles
from holdfast_controller.core.step.schedule_commands import ScheduleAsked, SchedulePauseAsked, ScheduleRemovalAsked
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer

LOOKED_AT_S = 60.0
AHEAD_S = 3600.0
"""A run that lies further ahead than this was made while the clock was wrong."""
MOST_OF_ONE, MOST = 100, 10_000
"""Schedules of one user, and of all."""
MOST_CHARS = 1 << 18
"""Of the job's spec: each schedule keeps it."""
MOST_JOBS_AT_ONCE, MOST_CHARS_AT_ONCE = 100, 4 << 20
"""Of one step: jobs of runs, and characters of their specs. A single run may have more, as a submission may."""
AGAIN_S = 0.05
"""Until runs go on whose predecessors are not durable yet."""
LABEL = "schedule"
"""Label of the jobs, whose value is the schedule's name."""
_SEE = "See: holdfast schedule list"


def on_schedule(step: Step, asked: ScheduleAsked | SchedulePauseAsked | ScheduleRemovalAsked) -> None:
    """Create, pause, resume or remove a schedule."""
    if isinstance(asked, ScheduleAsked):
        _create(step, asked)
        return
    key = key_of(asked.project, asked.name)
    schedule = step.cluster.schedules.get(key)
    if schedule is None:
        problem = f"There is no schedule {asked.name!r} in project {asked.project}."
        step.do(Refuse(asked.token, NotFound(problem, fix=_SEE)))
        return
    named = {"project": asked.project, "name": asked.name}
    match asked:
        case ScheduleRemovalAsked():
            step.emit(ev.ScheduleRemoved(**named, at=step.now.wall, by=asked.by))
        case SchedulePauseAsked(resume=True):
            if schedule.paused_by:
                step.emit(ev.ScheduleResumed(**named, at=step.now.wall, by=asked.by))
        case SchedulePauseAsked():
            if not schedule.paused_by:
                if not reconciles(step):
                    seek_hosts(step, _make_due(step, schedule))
                step.emit(ev.SchedulePaused(**named, at=step.now.wall, by=asked.by))
        case _:
            assert_never(asked)
    step.cluster.next_runs.pop(key, None)
    _arm(step)
    step.do(Reply(asked.token, key))


def _create(step: Step, asked: ScheduleAsked) -> None:
    key = key_of(asked.plan.gang.project, asked.name)
    wrong = violations(step.cluster, asked)
    refused = InvalidInput(wrong) if wrong else never_met(step.cluster, asked.plan.gang, asked.unseen)
    if refused is not None:
        step.do(Refuse(asked.token, refused))
        return
    step.emit(
        ev.ScheduleCreated(
            project=asked.plan.gang.project,
            name=asked.name,
            at=step.now.wall,
            owner=asked.owner,
            cron=asked.cron,
            time_zone=asked.time_zone,
            overlap=asked.overlap,
            deadline_s=asked.deadline_s,
            plan=asked.plan,
        )
    )
    step.cluster.next_runs.pop(key, None)
    _arm(step)
    step.do(Reply(asked.token, key))


def violations(cluster: Cluster, asked: ScheduleAsked) -> list[Violation]:
    """Why a schedule is not accepted."""
    found = []
    project = asked.plan.gang.project
    if not projects.is_project(asked.name):
        found.append(Violation("name", f"must {projects.MUST}", "such as nightly"))
    if not projects.is_project(project):
        found.append(Violation("job.project", f"must {projects.MUST}", "such as vision"))
    if key_of(project, asked.name) in cluster.schedules:
        fix = f"remove it first: holdfast schedule remove {asked.name}"
        found.append(Violation("name", f"there is a schedule {asked.name!r} in project {project}", fix))
    try:
        cron.parse(asked.cron)
    except cron.BadCron as error:
        found.append(Violation("cron", f"{asked.cron[:60]!r} {error}", "such as '30 3 * * MON-FRI', or @daily"))
    try:
        cron.zone_of(asked.time_zone)
    except cron.BadCron as error:
        found.append(Violation("timeZone", str(error), "such as Europe/Berlin, or leave it out for UTC"))
    if asked.deadline_s < 0:
        found.append(Violation("startingDeadline", "is negative", "such as 3600s, or leave it out for none"))
    if len(asked.plan.spec_json) > MOST_CHARS:
        problem = f"has {len(asked.plan.spec_json):,} characters, and a schedule keeps {MOST_CHARS:,} at most"
        found.append(Violation("job", problem, "put what is long into a file of the job's"))
    if len(cluster.schedules) >= MOST:
        found.append(Violation("", f"there are {MOST:,} schedules already", "remove some"))
    elif sum(each.owner == asked.owner for each in cluster.schedules.values()) >= MOST_OF_ONE:
        found.append(Violation("", f"{asked.owner} has {MOST_OF_ONE} schedules already", "remove some"))
    return found


def on_due(step: Step, durable: int | None = None) -> None:
    """Make runs that are due, as many as one step may, and arm the timer for those that are left or come next.

    The next ones wait until these are ``durable``: no more than one step's jobs are in memory for the store.
    """
    cluster = step.cluster
    if reconciles(step):
        # Where there was something to decide, its end arms the timer.
        until = cluster.reconcile_until
        later = until if step.now.mono < until else step.now.mono_in(LOOKED_AT_S)
        step.timers.set((ClusterTimer.SCHEDULES, ""), later)
        return
    if durable is not None and durable < cluster.runs_made_at:
        step.timers.set((ClusterTimer.SCHEDULES, ""), step.now.mono_in(AGAIN_S))
        return
    _heal_clock(step)
    made: list[list[Job]] = []
    jobs = chars = 0
    for schedule in _in_turn(step):
        count = schedule.plan.count
        jobs, chars = jobs + count, chars + count * len(schedule.plan.spec_json)
        if made and (jobs > MOST_JOBS_AT_ONCE or chars > MOST_CHARS_AT_ONCE):
            break
        made.append(_make_due(step, schedule))
    if made:
        seek_hosts(step, *made)
        cluster.runs_made_at = cluster.sequence
    _arm(step)


def _in_turn(step: Step) -> list[Schedule]:
    """Schedules that are due, their owners in turn: who had more runs since the oldest of them is due comes later."""
    cluster = step.cluster
    due = [
        (at, schedule)
        for schedule in cluster.schedules.values()
        if (at := next_run(cluster, schedule)) is not None and at <= step.now.wall
    ]
    if not due:
        return []
    oldest = min(at for at, _ in due)
    turns = Counter(each.owner for each in cluster.schedules.values() if each.settled >= oldest)
    found: list[tuple[int, Wall, int, Schedule]] = []
    for at, schedule in sorted(due, key=lambda item: (item[0], item[1].project, item[1].name)):
        found.append((turns[schedule.owner], at, len(found), schedule))
        turns[schedule.owner] += 1
    return [each[-1] for each in sorted(found, key=lambda item: item[:3])]


def next_run(cluster: Cluster, schedule: Schedule) -> Wall | None:
    """When it is due next; None while it is paused, and once it never is again."""
    if schedule.paused_by:
        return None
    key = key_of(schedule.project, schedule.name)
    if key not in cluster.next_runs:
        cluster.next_runs[key] = _after(schedule, schedule.settled)
    return cluster.next_runs[key]


def _heal_clock(step: Step) -> None:
    """Count from now for a schedule that has run in what is the future again: the clock was ahead, and is set right."""
    now = step.now.wall
    for key, schedule in step.cluster.schedules.items():
        if schedule.settled <= now + AHEAD_S:
            continue
        due = next_run(step.cluster, schedule)
        if due is not None and due > schedule.settled:
            step.cluster.next_runs[key] = _after(schedule, now)


def _after(schedule: Schedule, after: Wall) -> Wall | None:
    try:
        found = cron.next_run(schedule.cron, schedule.time_zone, after)
    except cron.BadCron:  # this machine has lost the time zone
        return None
    return None if found is None else Wall(found)


def _arm(step: Step) -> None:
    due = [at for each in step.cluster.schedules.values() if (at := next_run(step.cluster, each)) is not None]
    if due:
        soonest = step.now.mono_due(min(due), at_most_s=LOOKED_AT_S)
        step.timers.set((ClusterTimer.SCHEDULES, ""), soonest)
    else:
        step.timers.clear((ClusterTimer.SCHEDULES, ""))


def _make_due(step: Step, schedule: Schedule) -> list[Job]:
    """Make the newest run that is due, or leave it out, and all before it with it. Its jobs look for no hosts yet."""
    first = next_run(step.cluster, schedule)
    if first is None or first > step.now.wall:
        return []
    last = cron.last_run(schedule.cron, schedule.time_zone, first, step.now.wall)
    due = Wall(first if last is None else last)
    step.cluster.next_runs.pop(key_of(schedule.project, schedule.name), None)
    made = _run(step, schedule, due)
    named = {"project": schedule.project, "name": schedule.name}
    if isinstance(made, str):
        step.emit(ev.ScheduleLeftOut(**named, at=step.now.wall, due=due, first_due=first, why=made))
        if not _is_user(step, schedule.owner):  # removed by an earlier release, or as an admin of controller.toml
            step.emit(ev.SchedulePaused(**named, at=step.now.wall, by="holdfast"))
        return []
    job_id = made[0].gang.array.array if made[0].gang.array is not None else made[0].id
    step.emit(ev.ScheduleFired(**named, at=step.now.wall, due=due, job_id=job_id, first_due=first))
    return made


def _run(step: Step, schedule: Schedule, due: Wall) -> list[Job] | str:
    """The jobs of a run, or why there are none."""
    cluster, plan = step.cluster, schedule.plan
    late_s = step.now.wall - due
    if schedule.deadline_s and late_s > schedule.deadline_s:
        return f"no controller ran within {schedule.deadline_s:.12g} s of it"
    registry = Registry(step.policies.cluster_name, cluster.people, step.policies.admins)
    role = role_in(registry.grants(schedule.owner), schedule.project)
    if role is None or not role.covers(Role.USER):
        return f"{schedule.owner} may not submit jobs to project {schedule.project} any more"
    for whose, said in (("user", schedule.owner), ("project", schedule.project)):
        if f"{whose}/{said}" in cluster.full:
            return f"the jobs of {whose} {said} take all of the controller's disk that they may"
    if gone := _gone_secret(cluster, plan.gang):
        return f"the secret {gone} was removed"
    earlier = list(filter(cluster.goes_on, schedule.job_ids))
    if earlier and schedule.overlap is Overlap.FORBID:
        return f"{earlier[-1]} of an earlier run has not ended"
    if schedule.overlap is not Overlap.ALLOW and (orphan := _orphan_of(cluster, schedule)):
        return f"{orphan} of an earlier run was found after the restore and has not ended"
    replaced = [job for name in earlier for job in _jobs_of(cluster, name)] if _replaces(schedule) else []
    for job in replaced:
        if job.unreconciled is not None:
            return f"what became of {job.id} of an earlier run isn't known yet after the restore"
    gang = plan.gang
    if replaced:
        ends = tuple(Dependency(name, DependencyEnd.ANY) for name in earlier)
        gang = replace(gang, after=(*gang.after, *ends))
    asked = JobSubmission(
        token=0,
        owner=schedule.owner,
        request_id="",
        job_id=_new_id(step, schedule, due),
        plan=replace(plan, gang=gang, labels={**plan.labels, LABEL: schedule.name}),
        unseen=unseen(cluster, (each.job for each in gang.after), registry.sees(schedule.owner)),
    )
    made = make(step, asked)
    if isinstance(made, HoldfastError):
        return made.message
    for job in replaced:
        cancel(step, job, f"schedule {schedule.name}")
    return made


def _is_user(step: Step, name: str) -> bool:
    """Whether there is a user of this name, with or without a role."""
    people = step.cluster.people
    return name in people.roles or name in people.signed_in or name in step.policies.admins


def _gone_secret(cluster: Cluster, gang: Gang) -> str:
    """A secret that the job names and that is not there any more, with its holder; empty while all are."""
    for each in (named for pool in gang.pools for named in pool.task.secrets):
        if each.secret not in cluster.people.secrets.get(each.holder, {}):
            return f"{each.secret} of {holder_in_words(each.holder)}"
    return ""


def _replaces(schedule: Schedule) -> bool:
    return schedule.overlap is Overlap.REPLACE


def _new_id(step: Step, schedule: Schedule, due: Wall) -> str:
    """The id of a run's job: the schedule and its time in UTC. One of the same name may have run at that time too.

    One that was due before a restored controller started may have been made by the lost one, and be over since: hosts
    may know of it by its id.
    """
    cluster = step.cluster
    wanted = f"{schedule.name}-{cron.stamp(due)}"
    if cluster.gaps and step.now.mono_of(due) < cluster.listening_since:
        wanted += f"r{len(cluster.gaps)}"
    orphans = _orphans(cluster)
    found = wanted
    for number in itertools.count(2):
        if not (found in cluster.jobs or found in cluster.purged or found in cluster.arrays or found in orphans):
            break
        found = f"{wanted}x{number}"
    return found


_RUN = re.compile(r"-\d{12}(r\d+)?(x\d+)?")
"""What the id of a run has after the schedule's name."""


def _orphans(cluster: Cluster) -> dict[str, str]:
    """Work that only hosts know of after a restore: its host by its job's id, and by that of an array it may be of."""
    found: dict[str, str] = {}
    for host in cluster.hosts.values() if cluster.gaps else ():
        for orphan in host.orphans.values():
            found[orphan.job] = found[orphan.job.rpartition("-")[0]] = host.name
    return found


def _orphan_of(cluster: Cluster, schedule: Schedule) -> str:
    """A run of this schedule that a host has and the restored log hasn't, in words; empty without one.

    An orphan's project isn't known: one of another project's schedule of the same name counts too.
    """
    for name, host in _orphans(cluster).items():
        unknown = name not in cluster.jobs and name not in cluster.arrays
        if unknown and name.startswith(schedule.name) and _RUN.fullmatch(name, len(schedule.name)):
            return f"{name} on {host}"
    return ""


def _jobs_of(cluster: Cluster, name: str) -> list[Job]:
    """Every job of a run that has not ended, and maybe others of it."""
    array, whole = cluster.arrays.get(name), cluster.jobs.whole
    return [whole[each] for each in (array.jobs.values() if array is not None else (name,)) if each in whole]
