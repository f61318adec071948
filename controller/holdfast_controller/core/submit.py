"""Verbs of submission and placement: accept a job, and give the queue's head its hosts."""

from __future__ import annotations

from holdfast.errors import InvalidInput, NeverFits, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.actions import Assign, Refuse, Reply
from holdfast_controller.core.assignments import released
from holdfast_controller.core.explain import wait_reason
from holdfast_controller.core.gang import Gang
from holdfast_controller.core.host_model import Host, Liveness, place_key
from holdfast_controller.core.model import Cluster, Job
from holdfast_controller.core.placement import Plan, Wait, plan_in, plan_job, room
from holdfast_controller.core.queue import in_order
from holdfast_controller.core.steps import Step
from holdfast_controller.core.stimuli import JobSubmission


def on_submission(step: Step, asked: JobSubmission) -> None:
    """Accept a job once; the same request id of the same user is answered with the job it made."""
    cluster = step.cluster
    known = cluster.requests.get((asked.owner, asked.request_id)) if asked.request_id else None
    if known is not None:
        step.do(Reply(asked.token, known))
        return
    refusal = _refusal(cluster, asked, step.policies.max_jobs)
    if refusal is not None:
        step.do(Refuse(asked.token, refusal))
        return
    step.emit(
        ev.JobSubmitted(
            asked.job_id,
            step.now.wall,
            asked.owner,
            asked.request_id,
            asked.display_name,
            asked.labels,
            asked.gang,
            asked.spec_json,
            asked.annotations,
        )
    )
    step.do(Reply(asked.token, asked.job_id))
    job = cluster.jobs[asked.job_id]
    if in_order(cluster)[0] is job:
        place_queue(step)
    if not job.places:
        step.emit(ev.JobQueued(job.id, step.now.wall, wait_reason(cluster, job, takers(cluster))))


def _refusal(cluster: Cluster, asked: JobSubmission, max_jobs: int) -> InvalidInput | None:
    if asked.job_id in cluster.jobs:
        return InvalidInput([Violation("", f"the job id {asked.job_id} is taken", "submit again")])
    if sum(1 for job in cluster.jobs.values() if not job.terminal) >= max_jobs:
        return InvalidInput([Violation("", f"{max_jobs} jobs wait or run already", "try again later")])
    reason = _never_fits(asked.gang, list(cluster.hosts.values()))
    if reason:
        return NeverFits(
            [Violation("jobSpec.workerPoolSpecs", reason, "ask for less, or add hosts")], what="The job"
        )
    return None


def _never_fits(gang: Gang, hosts: list[Host]) -> str:
    """Why all hosts together, empty, could not hold the gang; empty when they could or none are known yet."""
    if not hosts:
        return ""
    found = plan_in(gang, [room(host, empty=True) for host in hosts])
    if isinstance(found, Plan):
        return ""
    return f"all {len(hosts)} hosts together could not hold the job even when empty: it {found.reason}"


def takers(cluster: Cluster) -> list[Host]:
    """Hosts that may be given new work now: heard from, connected and not cordoned."""
    found = []
    for name, host in cluster.hosts.items():
        presence = cluster.presence_of(name)
        if not host.cordoned and presence.session is not None and presence.liveness is Liveness.READY:
            found.append(host)
    return found


def place_queue(step: Step) -> None:
    """First come, first served: place the head of the queue until one has to wait."""
    cluster = step.cluster
    for job in in_order(cluster):
        if not may_be_placed(job, step.now.wall):
            continue
        found = plan_job(job, takers(cluster))
        if isinstance(found, Wait):
            return
        _place(step, job, found)


def may_be_placed(job: Job, now_wall: float) -> bool:
    """Whether nothing of an earlier attempt is left, and its time has come."""
    return not job.awaited and (job.not_before is None or job.not_before <= now_wall)


def _place(step: Step, job: Job, found: Plan) -> None:
    """Give a job its hosts; those that it has left may forget it."""
    before = job.places
    step.emit(ev.JobPlaced(job.id, step.now.wall, job.attempt + 1, job.generation + 1, found.places))
    step.touch(job)
    for index, place in enumerate(before):
        presence = step.cluster.presence_of(place.host)
        if place.host != job.places[index].host and presence.session is not None:
            presence.forgetting.add(place_key(job.id, index))
            step.do(Assign(place.host, presence.session, released(step.cluster, job, index, place.host)))
