"""Fold an event into the state: what it means, and nothing of what follows from it.

Every change of a durable field happens here, so replaying the log gives the state again. Decisions and
effects are the reactor's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never, get_args

from holdfast._base.dataclass import replace
from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.access import fold_people
from holdfast_controller.core.fold.allocation import hold, learn_run_time
from holdfast_controller.core.fold.attempt import (
    close_recoveries,
    fold_attempt,
    give_back,
    hold_spares,
    leave_queue,
    release,
    release_reserved,
    release_spares,
)
from holdfast_controller.core.fold.clock import fold_clock
from holdfast_controller.core.fold.dependency import enter_queue, fold_dependency
from holdfast_controller.core.fold.hang import close_hang, fold_hang
from holdfast_controller.core.fold.host import fold_controller_check, fold_host
from holdfast_controller.core.fold.injection import fold_injection
from holdfast_controller.core.fold.measurements import note_suspects
from holdfast_controller.core.fold.reservations import fold_reservations
from holdfast_controller.core.fold.restart import cause_found, restart
from holdfast_controller.core.fold.restore import (
    fold_cluster_reconciliation,
    fold_job_reconciliation,
    fold_orphan,
)
from holdfast_controller.core.fold.schedules import fold_planned
from holdfast_controller.core.fold.shares import fold_shares
from holdfast_controller.core.fold.underuse import close_underuse, fold_underuse
from holdfast_controller.core.goodput import fold as goodput
from holdfast_controller.core.goodput.host_record import on_rank_loss
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Allocation, place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState, checked
from holdfast_controller.core.model.phase import Ended, Ending, Held, Loan, Placed, Queued
from holdfast_controller.core.model.placement import Attempt, GangLaunch, Placement
from holdfast_controller.core.model.runtime import Runtime

PLANNED = ev.ScheduleEvent | ev.TemplateEvent
_OF_JOBS = frozenset(get_args(ev.JobEvent)) - {ev.JobSubmitted}


def fold(cluster: Cluster, event: ev.Event) -> None:
    """Apply ``event`` and count it."""
    if isinstance(event, ev.RankExited):  # most events are, so they come first
        fold_exits(cluster, (event,))
        return
    cluster.sequence += 1
    cluster.shares.at = event.at
    if type(event) in _OF_JOBS:
        _fold_of_job(cluster, event)  # type: ignore[arg-type]
        return
    if isinstance(event, PLANNED):
        fold_planned(cluster, event)
        return
    match event:
        case (
            ev.GpuCleared()
            | ev.GpuCondemned()
            | ev.HostJoined()
            | ev.HostRefused()
            | ev.HostThrottled()
            | ev.HostCordoned()
            | ev.HostUncordoned()
            | ev.HostDraining()
            | ev.HostDrained()
            | ev.HostFenced()
            | ev.HostPlaceFreed()
            | ev.HostLost()
            | ev.HostReturned()
            | ev.HostRemoved()
            | ev.HostShutdownBegan()
            | ev.AgentStopped()
            | ev.HostCheckFailed()
            | ev.HostCheckPassed()
            | ev.MaintenancePlanned()
            | ev.MaintenanceBegan()
            | ev.MaintenanceEnded()
            | ev.HostMeasurementDue()
            | ev.HostMeasurementBegan()
            | ev.HostMeasured()
        ):
            fold_host(cluster, event)
        case (
            ev.RoleGranted()
            | ev.RoleTaken()
            | ev.AccountsMapped()
            | ev.UserRemoved()
            | ev.TokenMade()
            | ev.TokenUsed()
            | ev.SecretSet()
            | ev.SecretRemoved()
            | ev.MotdSet()
            | ev.UserSignedIn()
            | ev.SignInEnded()
            | ev.SignInAllowed()
        ):
            fold_people(cluster.people, event)
        case ev.JobSubmitted():
            _submitted(cluster, event)
        case ev.ShareSet() | ev.GuaranteeSet() | ev.QuotaSet() | ev.HalfLifeSet():
            fold_shares(cluster, event)
        case ev.ReservationMade() | ev.ReservationBegan() | ev.ReservationEnded():
            fold_reservations(cluster, event)
        case ev.CommonCauseNoticed() | ev.CertificateEnding() | ev.MostHostsSilent():
            pass
        case ev.ClockLeapt():
            fold_clock(cluster, event)
        case ev.ControllerCheckFailed() | ev.ControllerCheckPassed():
            fold_controller_check(cluster, event)
        case ev.ClusterRestored() | ev.ReconciliationEnded():
            fold_cluster_reconciliation(cluster, event)
        case ev.OrphanFound() | ev.OrphanExited() | ev.OrphanStopRequested() | ev.OrphanGone():
            cluster.host_changed(event.host)
            fold_orphan(cluster, event)
        case _:
            _fold_of_job(cluster, event)


def fold_exits(cluster: Cluster, events: Sequence[ev.RankExited]) -> None:
    """The same for ends of a job's ranks that were recorded at one moment; their job is looked at once."""
    newest = events[-1]
    job = cluster.jobs[newest.job_id]
    cluster.sequence += len(events)
    cluster.shares.at = job.updated_at = newest.at
    job.cursor = cluster.sequence
    for event in events:
        exit_ = event.exit
        job.exits.setdefault(exit_.generation, {})[exit_.rank] = exit_
    cluster.arrays.note(job)
    cluster.jobs.note(job)
    goodput.take_exits(job, events)


def _fold_of_job(cluster: Cluster, event: ev.JobEvent) -> None:
    job = cluster.jobs[event.job_id]
    job.cursor, job.updated_at = cluster.sequence, event.at
    _fold_job(cluster, job, event)
    if not isinstance(event, ev.JobPurged):
        cluster.arrays.note(job)
        cluster.jobs.note(job)
    goodput.take(cluster, job, event)
    if isinstance(event, (ev.RestartDecided, ev.AttemptEnded)):
        on_rank_loss(cluster, event)
        note_suspects(cluster, event)


def made_of(event: ev.JobSubmitted, number: int) -> Job:
    """The job that is submitted as the ``number``-th event."""
    return Job(
        id=event.job_id,
        owner=event.owner,
        request_id=event.request_id,
        display_name=event.display_name,
        labels=event.labels,
        gang=event.gang,
        spec_json=event.spec_json,
        created_at=event.at,
        annotations=event.annotations,
        kms_key=event.kms_key,
        number=number,
        updated_at=event.at,
        cursor=number,
        phase=Held(since=event.at, unmet=event.gang.after),
    )


def _submitted(cluster: Cluster, event: ev.JobSubmitted) -> None:
    job = cluster.jobs[event.job_id] = made_of(event, cluster.sequence)
    if job.gang.measures:
        cluster.measuring.add(job.id)
    if job.gang.spares:
        cluster.sparing.add(job.id)
    cluster.dependents.add(job.id, job.unmet)
    if not job.unmet and not job.gang.takes_turns:
        enter_queue(cluster, job, event.at)
    cluster.arrays.note(job)
    if event.request_id:
        cluster.requests[event.owner, event.request_id] = event.job_id


def _fold_job(cluster: Cluster, job: Job, event: ev.JobEvent) -> None:
    match event:  # the most frequent first: the types are tried in turn
        case ev.WorkerEmptied():
            index = job.gang.index_by_name[event.worker]
            job.placement.emptied.add(index)
            if job.outcome is not None or index not in job.reserved:
                release(cluster, job, index, event.at)
        case ev.ProgressRecorded():
            pass  # for the ledger
        case ev.JobQueued():
            give_back(cluster, job, event.given_back, event.at)
            _queued(job, event)
            cluster.queue.put_in_line(job.id, job.line)
        case ev.DependencyEnded():
            fold_dependency(cluster, job, event)
        case ev.TurnCame():
            enter_queue(cluster, job, event.at)
        case ev.JobPlaced():
            _placed(cluster, job, event)
        case ev.JobSparesChanged():
            hold_spares(cluster, job, event.spares, event.at)
        case ev.PlacementTried():
            assert isinstance(job.phase, Queued)
            job.phase = replace(job.phase, placement_attempts=event.number, not_before=event.not_before)
        case ev.GangLaunched():
            job.launch.rendezvous = event.rendezvous
            if job.recoveries and job.recoveries[-1].generation == event.generation:
                job.recoveries[-1].stopped_at = event.at
        case ev.GangStarted():
            _started(cluster, job, event)
        case ev.LateExitFound():
            job.late_exits.append(event.exit)
        case ev.JobEnding():
            job.stop_reason = event.stop_reason
            close_underuse(job, event.at)
            close_hang(job, event.at, _ENDED[event.outcome])
            close_recoveries(job, event.at)
            leave_queue(cluster, job)
            cluster.dependents.discard(job.id, job.unmet)
            release_reserved(cluster, job, event.at)
            release_spares(cluster, job, event.at)
            job.phase = Ending(outcome=event.outcome, error=event.error)
        case ev.JobEnded():
            job.state = checked(job.state, event.state)
            job.phase = Ended(outcome=event.state, error=event.error or job.error, at=event.at)
            cluster.runtime.pop(job.id, None)
            cluster.measuring.discard(job.id)
            cluster.sparing.discard(job.id)
            learn_run_time(cluster, job)
        case ev.RestartDecided():
            restart(cluster, job, event)
        case ev.WorkerLaunched():
            job.launch.deferred.discard(job.gang.index_by_name[event.worker])
        case ev.WorkerStarted():
            job.started[job.gang.index_by_name[event.worker]] = event.started
            for recovery in job.recoveries:
                if recovery.generation == event.generation:
                    recovery.ended_at = event.at
                    recovery.warm = event.started.warm if job.gang.warm else None
                    recovery.warm_ranks = event.started.warm_ranks
                    recovery.in_process_ranks = event.started.in_process_ranks
        case ev.AttemptEnded() | ev.PauseRequested() | ev.JobWarned() | ev.JobPaused() | ev.JobResumed():
            fold_attempt(cluster, job, event)
        case ev.JobDeleted() | ev.OutputDeleted() | ev.JobPurged():
            _fold_deletion(cluster, job, event)
        case ev.CauseFound():
            cause_found(job, event)
        case (
            ev.HangNoticed() | ev.HangDiagnosed() | ev.HangJudged() | ev.HangStuck() | ev.HangOver() | ev.JobHeld()
        ):
            fold_hang(job, event)
        case ev.CaughtUp():
            job.recoveries[-1].caught_up_at = event.at
        case ev.WorldApart():
            job.launch.world_apart = True
        case ev.UnderuseNoticed() | ev.UnderuseOver() | ev.SlowdownNoticed() | ev.SlowdownOver():
            fold_underuse(job, event)
        case ev.PrimaryCompleted():
            job.launch.primary_done_at = event.at
        case ev.CancelRequested():
            if job.awaited:
                job.state = checked(job.state, JobState.CANCELLING)
        case ev.OutputArchived():
            job.unarchived.pop(event.worker, None)
            if event.problem:
                job.unarchived[event.worker] = event.problem
        case ev.WorkerFenced():
            index = job.gang.index_by_name[event.worker]
            job.placement.emptied.add(index)
            if isinstance(job.phase, Queued):
                job.phase = replace(job.phase, reserved=job.phase.reserved - {index})
            if event.vouched:
                release(cluster, job, index, event.at)
            else:
                job.placement.fenced.add(index)
        case ev.FaultInjected() | ev.FaultNotInjected():
            fold_injection(job, event)
        case ev.JobFound() | ev.JobUnsure() | ev.JobCleared():
            fold_job_reconciliation(cluster, job, event)
        case ev.JobSubmitted() | ev.NotificationGivenUp() | ev.PreparationNoted() | ev.MaintenanceAhead():
            pass
        case ev.RankExited():
            raise AssertionError("exits are folded together")
        case _:
            assert_never(event)


def _fold_deletion(cluster: Cluster, job: Job, event: ev.JobDeleted | ev.OutputDeleted | ev.JobPurged) -> None:
    match event:
        case ev.JobDeleted():
            job.deleted = True
            placed = {place.host for attempt in job.attempts for place in attempt.places}
            job.output_on = placed & cluster.hosts.keys() if event.with_output else set()
            for host in job.output_on:
                cluster.output_on.setdefault(host, set()).add(job.id)
        case ev.OutputDeleted():
            job.output_on.discard(event.host)
            left = cluster.output_on.get(event.host, set())
            left.discard(job.id)
            if not left:
                cluster.output_on.pop(event.host, None)
        case ev.JobPurged():
            del cluster.jobs[job.id]
            cluster.arrays.forget(job)
            cluster.requests.pop((job.owner, job.request_id), None)
            cluster.purged.add(job.id)
        case _:
            assert_never(event)


_ENDED = {
    JobState.CANCELLED: "the job was cancelled",
    JobState.FAILED: "the job failed",
    JobState.SUCCEEDED: "the job ended",
    JobState.EXPIRED: "the job ended",
}


def _queued(job: Job, event: ev.JobQueued) -> None:
    if isinstance(job.phase, Queued) and event.for_quota != job.phase.over_quota:
        since = None if event.for_quota else event.at
        job.phase = replace(job.phase, over_quota=event.for_quota, quota_since=since)


def _placed(cluster: Cluster, job: Job, event: ev.JobPlaced) -> None:
    job.state = checked(job.state, JobState.PENDING)
    if job.generation and not job.launched:
        job.unlaunched.add(job.generation)
    release_reserved(cluster, job, event.at)
    release_spares(cluster, job, event.at)
    job.phase = Placed(loan=Loan(of=event.loan_of, since=event.at) if event.loan_of else None)
    job.vacating = None
    job.placement = Placement(event.attempt, event.places, since=event.at)
    job.attempts.append(Attempt(event.attempt, event.generation, event.places))
    job.generation = event.generation
    job.launch = GangLaunch(event.generation)
    cluster.queue.discard(job.id)
    cluster.runtime[job.id] = Runtime(slow=cluster.runtime_of(job.id).slow)
    for member, place in zip(job.gang.members, event.places, strict=True):
        pool = job.gang.pool_of(member)
        share = Allocation(pool.cpus, pool.memory_mb, place.gpus, job.revocable)
        hold(cluster, cluster.hosts[place.host], place_key(job.id, member.index), share, event.at)
    hold_spares(cluster, job, event.spares, event.at)


def _started(cluster: Cluster, job: Job, event: ev.GangStarted) -> None:
    job.launch.started = event.started
    if job.state is JobState.PENDING:
        job.state = checked(job.state, JobState.RUNNING)
        job.started_at = event.at if job.started_at is None else job.started_at
    if job.placement.running_since is None:
        job.placement.running_since = event.at
    if job.recoveries and job.recoveries[-1].generation == event.generation:
        job.recoveries[-1].ended_at = event.at
        job.recoveries[-1].warm = all(each.warm for each in event.started.values()) if job.gang.warm else None
        job.recoveries[-1].warm_ranks = sum(each.warm_ranks for each in event.started.values())
        job.recoveries[-1].in_process_ranks = sum(each.in_process_ranks for each in event.started.values())
