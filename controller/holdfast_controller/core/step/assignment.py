"""The desired state of each worker, computed from its job. There is no outbox: an assignment that is lost on the
way is computed again when the agent reconnects.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast._session.assignment import Assignment, Launch, Phase, Rendezvous
from holdfast._session.reports import ExitReason, WorkerId
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import HANG_GRACE_S, HangOutcome
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.hosts.own_spares import is_own_spare
from holdfast_controller.core.model.job import Job


def desired(cluster: Cluster, job: Job, index: int, fence_s: float) -> Assignment:
    """The assignment of worker ``index`` of a placed job: its desired state now.

    Workers of a job that is replaced when a host is lost end by themselves after ``fence_s`` without a controller.
    """
    phase = _phase(job, index)
    # Once launched, the next generation is a gang like any other: its host may stop it by itself.
    hung = job.stop_reason is ExitReason.HANG_KILLED and phase is not Phase.RUN
    warned = phase is Phase.RUN and job.generation_of(index) <= job.warned
    return Assignment(
        epoch=cluster.epoch,
        key=WorkerId(job.id, job.gang.members[index].name),
        attempt=job.attempt,
        generation=job.generation_of(index),
        phase=phase,
        grace_s=min(job.gang.grace_s, HANG_GRACE_S) if hung else job.gang.grace_s,
        stop_reason=job.stop_reason,
        launch=_launch(cluster, job, index, phase) if phase in (Phase.PREPARE, Phase.RUN) else None,
        fence_s=fence_s if job.gang.replace_when_lost else 0.0,
        peer_fence_s=fence_s if job.gang.replace_if_isolated else 0.0,
        warn_signal=job.gang.warning.signal if warned and job.gang.warning else 0,
        notice_signal=job.gang.warning.signal if job.gang.warning and phase is Phase.RUN else 0,
        notice_s=job.gang.warning.notice_s if job.gang.warning and phase is Phase.RUN else 0.0,
        hung_ranks=_hung_ranks(job, index),
    )


def _hung_ranks(job: Job, index: int) -> tuple[int, ...]:
    """The worker's ranks that the generation before hung by; only a job whose ranks may go on has to know."""
    hang = job.hangs[-1] if job.hangs and job.gang.warm and job.gang.warm.in_process else None
    if hang is None or hang.outcome is HangOutcome.OVER or hang.generation != job.generation_of(index) - 1:
        return ()
    return tuple(each.rank for each in hang.suspects if each.worker == job.gang.members[index].name)


def _launch(cluster: Cluster, job: Job, index: int, phase: Phase) -> Launch:
    gang, member = job.gang, job.gang.members[index]
    pool = gang.pool_of(member)
    return Launch(
        task=pool.task,
        first_rank=member.first_rank,
        processes=member.processes,
        world_size=gang.world_size,
        gpus=job.places[index].gpus,
        restart_count=job.restarts_in_place,
        last_end=job.last_end.value if job.last_end is not None else "",
        rendezvous=_rendezvous(cluster, job) if phase is Phase.RUN else None,
        pool=member.pool,
        replica=member.replica,
        worker_count=gang.world_workers,
        worker_index=member.index,
        cpu_count=pool.cpus,
        memory_mb=pool.memory_mb,
        step_pattern=gang.hang.step_pattern,
        hang_timeout_s=gang.hang.timeout_s or 0.0,
        output_uri=gang.output_uri,
        spec_json=job.spec_json,
        process_starts=job.starts_of(index),
        owner=job.owner,
        idle_below_pct=gang.underuse.below_pct if gang.underuse is not None and pool.gpus else 0,
        warm=None if job.budgets.warm_failed else gang.warm,
        numa_binding=gang.numa_binding,
    )


def _rendezvous(cluster: Cluster, job: Job) -> Rendezvous | None:
    """The rendezvous of a launched generation, built once for all its workers; None before the launch."""
    found, runtime = job.launch.rendezvous, cluster.runtime_of(job.id)
    if found is None:
        return None
    if runtime.rendezvous is None or runtime.rendezvous[0] is not found:
        pools: list[list[str]] = [[] for _ in job.gang.pools]
        for member, address, port in zip(job.gang.members, found.addresses, found.ports, strict=True):
            pools[member.pool].append(f"{address}:{port}")
        addresses = tuple(map(tuple, pools))
        runtime.rendezvous = found, Rendezvous(found.master_address, found.master_port, found.secret, addresses)
    return runtime.rendezvous[1]


def _phase(job: Job, index: int) -> Phase:
    if index in job.placement.emptied and (job.terminal or not job.stopping):
        return Phase.FORGET
    if job.stopping:
        return Phase.STOP
    return Phase.RUN if job.launched and index not in job.launch.deferred else Phase.PREPARE


def released(cluster: Cluster, job: Job, index: int) -> Assignment:
    """The assignment for a host that a worker has left: stop it there and forget it."""
    return replace(
        desired(cluster, job, index, 0.0), phase=Phase.FORGET, launch=None, warn_signal=0, notice_signal=0
    )


def on_host(cluster: Cluster, host: str) -> list[tuple[Job, int]]:
    """(Job, worker index) of each worker that is placed on the host and holds its share there."""
    found = []
    for key in cluster.hosts[host].allocations:
        job_id, _, number = key.rpartition("/")
        job, index = cluster.jobs[job_id], int(number)
        if job.is_spare(index):
            continue
        if job.places[index].host == host and index not in job.placement.fenced:
            found.append((job, index))
    return found


def quarantined(cluster: Cluster, host: str) -> list[str]:
    """Keys of the host's quarantined shares: their workers were taken as gone, and are not proven to be."""
    here = {place_key(job.id, index) for job, index in on_host(cluster, host)}
    return [key for key in cluster.hosts[host].allocations if key not in here and not is_own_spare(cluster, key)]


def holds(cluster: Cluster, job: Job, index: int, host: str) -> bool:
    """Whether the worker is placed on ``host`` and holds its share there."""
    placed = index < len(job.places) and job.places[index].host == host and index not in job.placement.fenced
    return placed and place_key(job.id, index) in cluster.hosts[host].allocations


def has_left(job: Job, index: int, host: str) -> bool:
    """Whether the worker was on the host and has left it for good."""
    was_here = any(attempt.places[index].host == host for attempt in job.attempts)
    return was_here and (job.terminal or index in job.placement.fenced or job.places[index].host != host)
