"""Why a job isn't running, in words. The same words go into lists, pages and events."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_controller.core.host_model import Host, Liveness
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import Cluster, Job, Leaving
from holdfast_controller.core.placement import Wait, plan_job
from holdfast_controller.core.queue import in_order


def queue_positions(cluster: Cluster) -> Mapping[str, int]:
    """Place of each queued job in the queue, from 0."""
    return {job.id: place for place, job in enumerate(in_order(cluster))}


def wait_reason(cluster: Cluster, job: Job, takers: list[Host], positions: Mapping[str, int] | None = None) -> str:
    """Why ``job`` isn't running at present; empty when it is, or has ended."""
    if job.terminal:
        return ""
    if job.state is JobState.PAUSED:
        return f"paused; go on with: holdfast job resume {job.id}"
    if job.leaving is not None and job.awaited:
        verb = "being paused" if job.leaving is Leaving.PAUSE else "being placed anew"
        return _unfinished(cluster, job, f"{verb}; waits for its workers to be gone from", set(job.emptied))
    if job.state is JobState.QUEUED:
        return _queued(cluster, job, takers, positions or queue_positions(cluster))
    if job.outcome is not None:
        return _unfinished(cluster, job, "waits for its workers to be gone from", set(job.emptied))
    if not job.launched:
        if job.not_before is not None and len(cluster.runtime_of(job.id).prepared) == len(job.places):
            return _backs_off(job)
        again = job.recoveries and job.recoveries[-1].recover == "PROC_RESTART"
        verb = "restarting in place on" if again else "being prepared on"
        return _unfinished(cluster, job, verb, set(cluster.runtime_of(job.id).prepared))
    if not job.started:
        return _unfinished(cluster, job, "starting on", set(cluster.runtime_of(job.id).started))
    return _out_of_sight(cluster, job) or _worker_alone(job)


def _out_of_sight(cluster: Cluster, job: Job) -> str:
    """Hosts of a job that runs, for all that is known, of which nothing is heard; empty when all are."""
    hosts = dict.fromkeys(job.places[index].host for index in job.awaited)
    silent = [name for name in hosts if cluster.presence_of(name).liveness is not Liveness.READY]
    if not silent:
        return ""
    shown = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")
    if job.gang.replace_when_lost:
        return f"nothing is heard from {shown}; it goes on elsewhere once the lease is over"
    return f"nothing is heard from {shown}; waits for word, or for: holdfast host fence {silent[0]}"


def _worker_alone(job: Job) -> str:
    """Workers that are relaunched by themselves while the others run."""
    back = [index for index in sorted(job.alone) if index not in job.started]
    names = ", ".join(job.gang.members[index].name for index in back[:3])
    more = f" and {len(back) - 3} more" if len(back) > 3 else ""
    if not back:
        return ""
    doing = _backs_off(job) if job.held_back.issuperset(back) else "restarting in place"
    return f"{names}{more} alone: {doing}"


def _backs_off(job: Job) -> str:
    return f"backs off after {job.failures} failures in a row"


def _queued(cluster: Cluster, job: Job, takers: list[Host], positions: Mapping[str, int]) -> str:
    ahead = positions.get(job.id, 0)
    if ahead:
        head = in_order(cluster)[0].id
        return f"behind {head} in the queue" if ahead == 1 else f"behind {ahead} jobs in the queue, first {head}"
    if not cluster.hosts:
        return "no host has joined yet"
    found = plan_job(job, takers)
    return found.reason if isinstance(found, Wait) else "being placed"


def _unfinished(cluster: Cluster, job: Job, doing: str, done: set[int]) -> str:
    """Which hosts are still awaited, and what is known of their silence or trouble."""
    waiting: dict[str, None] = {}
    for index, place in enumerate(job.places):
        if index not in done:
            waiting[place.host] = None
    stuck = [message for _, message in sorted(cluster.runtime_of(job.id).stuck.items())]
    if stuck:
        return stuck[0]
    names = list(waiting)
    silent = [name for name in names if cluster.presence_of(name).session is None]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    note = f" ({', '.join(silent[:3])} not connected)" if silent else ""
    return f"{doing} {shown}{note}"
