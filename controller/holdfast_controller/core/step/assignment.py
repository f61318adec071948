"""The desired state of each worker, computed from the job as it stands. There is no outbox: what is lost on
the way is computed again when the agent says hello.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from holdfast._session.reports import ExitReason
from holdfast_controller.core.model.gang import Gang, Member
from holdfast_controller.core.model.host import place_key
from holdfast_controller.core.model.job import Cluster, Job, Place, Rendezvous

HANG_GRACE_S = 5.0
"""Between TERM and KILL of a gang that hangs: it would use no more."""


class Phase(enum.Enum):
    """What is wanted of a worker's place."""

    PREPARE = "PREPARE"
    RUN = "RUN"
    STOP = "STOP"
    FORGET = "FORGET"


@dataclass(frozen=True)
class Assignment:
    """Desired state of one worker; whatever is of an older generation has to go. ``rendezvous`` in phase RUN."""

    epoch: int
    job_id: str
    attempt: int
    generation: int
    member: Member
    place: Place
    gang: Gang
    phase: Phase
    stop_reason: ExitReason
    restart_count: int
    last_end: str
    spec_json: str
    grace_s: float
    rendezvous: Rendezvous | None = None
    warn_signal: int = 0
    """For this generation's ranks, once; 0: none."""
    process_starts: int = 1
    """Launches of this worker since its placement, this one included."""


def desired(cluster: Cluster, job: Job, index: int) -> Assignment:
    """What worker ``index`` of a placed job should be doing now."""
    phase = _phase(job, index)
    hung = job.stop_reason is ExitReason.HANG_KILLED
    warned = phase is Phase.RUN and job.generation_of(index) <= job.warned
    return Assignment(
        epoch=cluster.epoch,
        job_id=job.id,
        attempt=job.attempt,
        generation=job.generation_of(index),
        member=job.gang.members[index],
        place=job.places[index],
        gang=job.gang,
        phase=phase,
        stop_reason=job.stop_reason,
        restart_count=job.restarts_in_place,
        process_starts=job.starts_of(index),
        last_end=job.last_end,
        spec_json=job.spec_json,
        grace_s=min(job.gang.grace_s, HANG_GRACE_S) if hung else job.gang.grace_s,
        rendezvous=job.rendezvous if phase is Phase.RUN else None,
        warn_signal=job.gang.warning.signal if warned and job.gang.warning else 0,
    )


def _phase(job: Job, index: int) -> Phase:
    if job.terminal and index in job.emptied:
        return Phase.FORGET
    if job.stopping:
        return Phase.STOP
    return Phase.RUN if job.launched and index not in job.held_back else Phase.PREPARE


def released(cluster: Cluster, job: Job, index: int, host: str) -> Assignment:
    """The order to a host that a worker has left: nothing of it is wanted there any more."""
    return replace(
        desired(cluster, job, index), place=Place(host), phase=Phase.FORGET, rendezvous=None, warn_signal=0
    )


def on_host(cluster: Cluster, host: str) -> list[tuple[Job, int]]:
    """Every worker that is placed on the host and holds its share there."""
    found = []
    for key in cluster.hosts[host].allocations:
        job_id, _, index = key.rpartition("/")
        job = cluster.jobs[job_id]
        if job.places[int(index)].host == host and int(index) not in job.fenced:
            found.append((job, int(index)))
    return found


def withheld(cluster: Cluster, host: str) -> list[str]:
    """Shares of the host whose workers were taken as gone: the host has not proven them empty."""
    here = {place_key(job.id, index) for job, index in on_host(cluster, host)}
    return [key for key in cluster.hosts[host].allocations if key not in here]


def holds(cluster: Cluster, job: Job, index: int, host: str) -> bool:
    """Whether the worker is placed on that very host, and has its share there."""
    placed = index < len(job.places) and job.places[index].host == host and index not in job.fenced
    return placed and place_key(job.id, index) in cluster.hosts[host].allocations
