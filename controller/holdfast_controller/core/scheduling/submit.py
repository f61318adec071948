"""Submission: accept a job, or refuse it with a reason."""

from __future__ import annotations

import json

from holdfast._base.dataclass import replace
from holdfast.errors import AccountDenied, HoldfastError, InvalidInput, InvalidSpec, NeverFits, TooMany, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.access.accounts import account_for
from holdfast_controller.core.lifecycle.attempts import await_hosts
from holdfast_controller.core.lifecycle.dependencies import never_met, note_end, outcome_of
from holdfast_controller.core.lifecycle.other_hosts import schedulable_hosts
from holdfast_controller.core.model.accounts.quota import USER, never, quota_of
from holdfast_controller.core.model.arrays import Element
from holdfast_controller.core.model.clock import Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang, Strategy
from holdfast_controller.core.model.hosts.own_spares import never_used
from holdfast_controller.core.model.hosts.spares import spares_kept, spares_of
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.schedules import JobPlan
from holdfast_controller.core.scheduling.expiry import note_wait
from holdfast_controller.core.scheduling.fair_share.guarantees import claims
from holdfast_controller.core.scheduling.fair_share.turns import ahead_of
from holdfast_controller.core.scheduling.open_hosts import ends_at
from holdfast_controller.core.scheduling.queue_pass import place_queue
from holdfast_controller.core.scheduling.wait_reasons.never_fits import MOST_KINDS, fit_when_empty
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView, wait_reason
from holdfast_controller.core.step.actions import Refuse, Reply
from holdfast_controller.core.step.commands import JobSubmission
from holdfast_controller.core.step.step import Policies, Step

MOST_ENDS = 20_000
"""Ends of other jobs that all waiting jobs of one user may wait for together: one step may have to tell of each."""
MOST_ARRAY_CHARS = 32 << 20
"""Of specs, labels and annotations of all elements of an array, kept with each of them: one commit takes them all."""


def on_submission(step: Step, asked: JobSubmission) -> None:
    """Accept a job, or an array of them, or refuse it with a reason; ``on_once`` answers repeated requests."""
    jobs = make(step, asked)
    if isinstance(jobs, HoldfastError):
        step.do(Refuse(asked.token, jobs))
        return
    step.do(Reply(asked.token, jobs[0].id))
    seek_hosts(step, jobs)


def make(step: Step, asked: JobSubmission) -> list[Job] | HoldfastError:
    """The jobs of a submission, in the state and the log, or why there are none. They look for no hosts yet."""
    cluster = step.cluster
    try:
        account = account_for(asked.owner, asked.plan.gang.account, cluster.people, step.policies)
    except AccountDenied as denied:
        return denied
    if account != asked.plan.gang.account:
        asked = replace(asked, plan=asked.plan.running_as(account))
    refused = refusal(cluster, asked, step.policies)
    if refused is not None:
        return refused
    return [_submit(step, asked, job_id, gang) for job_id, gang in _made(asked)]


def seek_hosts(step: Step, *submitted: list[Job]) -> None:
    """Let new jobs start, if they may, and say of the first of each submission that doesn't why it waits."""
    cluster = step.cluster
    waiting = [found for jobs in submitted if (found := [job for job in jobs if job.id in cluster.queue])]
    if any(may_start_at_once(cluster, step.policies, jobs[0], step.now) for jobs in waiting):
        place_queue(step)
    firsts = [next((job for job in jobs if not job.places), None) for jobs in waiting]
    told = [job for job in firsts if job is not None and not job.placement_attempts and not job.over_quota]
    if told:
        hosts = schedulable_hosts(cluster)
        queue_view = QueueView(cluster, hosts, step.policies.quotas, at=step.now)
        for job in told:
            note_wait(step, job, queue_view.quota_lack(job), wait_reason(cluster, job, hosts, queue_view))


def _made(asked: JobSubmission) -> list[tuple[str, Gang]]:
    """Id and gang of each job that it makes."""
    plan = asked.plan
    if not plan.indices:
        return [(asked.job_id, plan.gang)]
    count = plan.count
    at_once = plan.at_once if plan.at_once < count else 0
    elements = [Element(asked.job_id, index, count, at_once) for index in plan.indices]
    return [(element.job_id, plan.gang.as_element(element)) for element in elements]


def submitted(asked: JobSubmission, job_id: str, gang: Gang, at: Wall) -> ev.JobSubmitted:
    """One job of a submission. Of an array the first element keeps the request's id: by it the array is found again."""
    plan = asked.plan
    return ev.JobSubmitted(
        job_id=job_id,
        at=at,
        owner=asked.owner,
        request_id="" if gang.array is not None and gang.array.index != plan.indices[0] else asked.request_id,
        display_name=plan.display_name,
        labels=plan.labels,
        gang=gang,
        spec_json=plan.spec_json,
        annotations=plan.annotations,
        kms_key=plan.kms_key,
    )


def _submit(step: Step, asked: JobSubmission, job_id: str, gang: Gang) -> Job:
    cluster = step.cluster
    step.emit(submitted(asked, job_id, gang, step.now.wall))
    job = cluster.jobs[job_id]
    for each in job.unmet:
        if (state := outcome_of(cluster, each.job)) is not None:
            note_end(step, job, each.job, state)
    if job.id in cluster.queue:
        await_hosts(step, job)
    return job


def may_start_at_once(cluster: Cluster, policies: Policies, job: Job, now: Now) -> bool:
    """Whether a pass may place a new job: not where it is last and one of the same shape did not fit, without a claim.

    Of an array this is asked of the first element: the others wait alike, and behind it.
    """
    if any(each is job for each in claims(cluster, policies.quotas, now.wall)):
        return True
    if cluster.reservations.of(job.whose):
        return True
    behind = len(cluster.queue) - 1 - ahead_of(cluster, job)
    is_last = behind < (job.gang.array.count if job.gang.array is not None else 1)
    shape = job.gang.shape
    no_room = shape in cluster.unplaceable
    if policies.lends_to(job.gang):
        no_room = no_room and job.gang.kind in cluster.unlendable
    if no_room and shape in cluster.too_long and job.gang.strategy is not Strategy.SPOT:
        no_room = ends_at(cluster, job, now) > cluster.too_long[shape]
    return not (is_last and job.gang.waits and no_room)


def refusal(cluster: Cluster, asked: JobSubmission, policies: Policies) -> HoldfastError | None:
    """Why a job is not accepted; None where it is."""
    plan, gang = asked.plan, asked.plan.gang
    for job_id in (asked.job_id, *(f"{asked.job_id}-{index}" for index in plan.indices)):
        if job_id in cluster.jobs or job_id in cluster.purged or job_id in cluster.arrays:
            return InvalidInput([Violation("", f"the job id {job_id} is taken", "submit again")])
    full = len(cluster.jobs) + plan.count > policies.max_jobs
    if full and sum(not job.terminal for job in cluster.jobs.whole.values()) + plan.count > policies.max_jobs:
        most = f"with {plan.count:,} more than {policies.max_jobs:,} jobs would wait or run"
        problem = most if plan.indices else f"{policies.max_jobs} jobs wait or run already"
        return InvalidInput([Violation("", problem, "try again later")])
    if plan.indices and (chars := _chars_of_each(plan) * len(plan.indices)) > MOST_ARRAY_CHARS:
        kept = "the whole spec, labels and annotations"
        problem = f"each element keeps {kept}: {chars >> 20:,} MiB, and {MOST_ARRAY_CHARS >> 20} are allowed"
        fix = "submit fewer elements at a time, or a shorter spec"
        return InvalidSpec([Violation("jobSpec.scheduling.array", problem, fix)])
    if problem := never_used(gang):
        fix = "ask for the disconnectPolicy STOP_AND_REPLACE, or for no spares"
        return InvalidSpec([Violation("jobSpec.scheduling.spares", problem, fix)])
    if unmet := never_met(cluster, gang, asked.unseen):
        return unmet
    if too_many := _too_many_wait(cluster, asked, policies):
        return too_many
    field, over = never(policies.quotas, asked.owner, gang)
    if over:
        fix = "ask for less, name another project, or have an admin raise the quota"
        return NeverFits([Violation(field, over, fix)], what="The job")
    if gang.kind in cluster.can_fit:
        return None
    hosts = list(cluster.hosts.values())
    spares = spares_of(policies.spares, hosts, empty=True) if gang.strategy is not Strategy.SPOT else {}
    fit = fit_when_empty(gang, [host for host in hosts if host.name not in spares])
    if reason := fit.reason:
        reason += f"; {spares_kept(len(spares))}" if spares else ""
        return NeverFits([Violation("jobSpec.workerPoolSpecs", reason, fit.fix)], what="The job")
    if fit.fits:
        if len(cluster.can_fit) >= MOST_KINDS:
            cluster.can_fit.clear()
        cluster.can_fit.add(gang.kind)
    return None


def _chars_of_each(plan: JobPlan) -> int:
    """Characters that each element stores of what its user wrote."""
    return len(plan.spec_json) + sum(len(json.dumps(each)) for each in (plan.labels, plan.annotations) if each)


def _too_many_wait(cluster: Cluster, asked: JobSubmission, policies: Policies) -> TooMany | None:
    """The refusal of one job more in the queue of its owner or its project; None while both may have it."""
    plan, project = asked.plan, asked.plan.gang.project
    quota = quota_of(policies.quotas, project)
    of_project = quota.waiting_jobs if quota is not None else None
    of_project = policies.waiting_jobs_per_project if of_project is None else of_project
    own = quota_of(policies.quotas, USER + asked.owner)
    of_user = policies.waiting_jobs_per_user if own is None or own.waiting_jobs is None else own.waiting_jobs
    known = len(cluster.queue) + len(cluster.dependents) + cluster.arrays.waiting
    if known + plan.count <= min(of_user, of_project):
        return _too_many_ends(cluster, asked)
    turns = cluster.arrays.waiting_jobs()
    waiting = [cluster.jobs[name] for names in (cluster.queue, cluster.dependents, turns) for name in names]
    fix = "Wait until some have started or cancel some; an admin can raise it: holdfast quota set {} --waiting N"
    if (own_waiting := sum(job.owner == asked.owner for job in waiting)) + plan.count > of_user:
        problem = f"{asked.owner} has as many jobs waiting as one user may have: {of_user:,}."
        if plan.indices:
            problem = _too_large(plan, f"{asked.owner} has {own_waiting:,} jobs waiting of {of_user:,}")
        return TooMany(problem, fix=fix.format(f"--user {asked.owner}"))
    if (its_waiting := sum(job.gang.project == project for job in waiting)) + plan.count > of_project:
        problem = f"Project {project} has as many jobs waiting as it may have: {of_project:,}."
        if plan.indices:
            problem = _too_large(plan, f"project {project} has {its_waiting:,} jobs waiting of {of_project:,}")
        return TooMany(problem, fix=fix.format(f"--project {project}"))
    return _too_many_ends(cluster, asked)


def _too_large(plan: JobPlan, whose: str) -> str:
    return f"The array has {plan.count:,} elements, and {whose} that it may have."


def _too_many_ends(cluster: Cluster, asked: JobSubmission) -> TooMany | None:
    """The refusal of one job more that runs after others; None while its owner may have it.

    When a job ends, the same step tells all of these, and nothing else is decided meanwhile.
    """
    more = len(asked.plan.gang.after) * asked.plan.count
    if not more or cluster.dependents.ends + more <= MOST_ENDS:
        return None
    waiting = (cluster.jobs[name] for name in cluster.dependents)
    if sum(len(job.unmet) for job in waiting if job.owner == asked.owner) + more <= MOST_ENDS:
        return None
    problem = f"The jobs of {asked.owner} wait for as many ends of others as those of one user may: {MOST_ENDS:,}."
    return TooMany(
        problem, fix="Let one job wait for the many, and the others for that one; or wait for some ends."
    )
