"""Jobs of the core as the API shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf import duration_pb2, timestamp_pb2

from holdfast._base.proto_values import duration, showable
from holdfast._base.spans import spans_of
from holdfast._session import codec
from holdfast._session.reports import Exit
from holdfast.v1 import access_pb2, job_pb2, spec_pb2
from holdfast_controller.core.lifecycle.recovery_phases import phases_of
from holdfast_controller.core.model.accounts.users import Motd
from holdfast_controller.core.model.arrays import Array, Element
from holdfast_controller.core.model.budgets import Recovery
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.exits import JobError, shown_raised
from holdfast_controller.core.model.gang import Gang, Member
from holdfast_controller.core.model.hang import Hang
from holdfast_controller.core.model.job import Job, WorkerState
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import related_in_words
from holdfast_controller.core.scheduling.projections.dry_run import DryRun
from holdfast_controller.core.scheduling.wait_reasons.pending_reason import QueueView
from holdfast_controller.core.views.exits_alike import Alike
from holdfast_controller.core.views.expected_end import ExpectedEnd, expected_end
from holdfast_controller.core.views.job_summary import Summary, summary_of
from holdfast_controller.core.views.training import training_of
from holdfast_controller.shell.convert.recovery_to_proto import (
    end_reason_to_proto,
    hang_outcome_to_proto,
    hang_rule_to_proto,
    rank_names_to_proto,
    recovery_kind_to_proto,
    related_to_proto,
)


def timestamp(wall_s: float) -> timestamp_pb2.Timestamp:
    """Epoch seconds on the wire, to the microsecond; what no calendar shows as the nearest time that one does."""
    seconds, micros = divmod(round(showable(wall_s) * 1e6), 1_000_000)
    return timestamp_pb2.Timestamp(seconds=seconds, nanos=micros * 1000)


def motd_to_proto(motd: Motd | None) -> access_pb2.Motd | None:
    """The message of the day; None where there is none."""
    return access_pb2.Motd(text=motd.text, by=motd.by, time=timestamp(motd.at)) if motd is not None else None


def job_to_proto(
    cluster: Cluster,
    job: Job,
    spec: spec_pb2.CustomJobSpec | None,
    queue_view: QueueView,
    now: Now,
    *,
    recoveries: bool = True,
) -> job_pb2.CustomJob:
    """The job as users see it, without its workers, and its ``recoveries`` only if wanted; as a row where ``spec`` is
    None.

    ``queue_view`` is for the reason it waits.
    """
    row = spec is None
    training, summary = training_of(cluster, job), summary_of(cluster, job, queue_view, now)
    message = job_pb2.CustomJob(
        id=job.id,
        display_name=job.display_name,
        job_spec=spec,
        labels=job.labels,
        state=job_pb2.JobState.Value(f"JOB_STATE_{job.state.name}"),
        create_time=timestamp(job.created_at),
        update_time=timestamp(job.updated_at),
        attempt=job.attempt,
        generation=job.generation,
        wait_reason=summary.waits,
        waits_for=[each.job for each in job.unmet],
        recoveries=[recovery_to_proto(each) for each in job.recoveries] if recoveries and not row else [],
        owner=job.owner,
        project=job.gang.project,
        annotations={} if row else job.annotations,
        cursor=job.cursor,
        hangs=[] if row else [hang_to_proto(hang) for hang in job.hangs],
        health=health_of(cluster, job),
        archive_problems=job.unarchived,
        account=job.gang.account,
        step=training.step,
        step_total=training.total,
        phase=training.phase,
        saved_step=training.saved_step,
        summary=summary_to_proto(summary),
        spare_hosts=[spare.host for spare in job.spares],
    )
    if (array := cluster.arrays.of(job)) is not None and job.gang.array is not None:
        message.array.CopyFrom(array_to_proto(array, job.gang.array))
    if row:
        message.gpu_count, message.host_count = job.gang.gpus, len({place.host for place in job.places})
        message.recovery_count, message.hang_count = len(job.recoveries), len(job.hangs)
    elif job.kms_key:
        message.encryption_spec.kms_key_name = job.kms_key
    expected = expected_end(cluster, job, training, now)
    if expected is not None:
        message.expected_end.CopyFrom(expected_end_to_proto(expected))
    if job.held_until is not None:
        message.held_until.CopyFrom(timestamp(job.held_until))
    if job.started_at is not None:
        message.start_time.CopyFrom(timestamp(job.started_at))
    if job.ended_at is not None:
        message.end_time.CopyFrom(timestamp(job.ended_at))
    if job.error is not None and job.terminal:
        message.error.CopyFrom(error_to_proto(job.error))
    return message


def array_to_proto(array: Array, element: Element) -> job_pb2.JobArray:
    """A job's place in its array, and how far the array is."""
    tally = array.tally
    running = tally[JobState.PENDING] + tally[JobState.RUNNING] + tally[JobState.CANCELLING]
    return job_pb2.JobArray(
        id=element.array,
        index=element.index,
        count=element.count,
        at_once=element.at_once,
        running=running,
        waiting=len(array.jobs) - running - array.ended,
        done=tally[JobState.SUCCEEDED],
        failed=array.ended - tally[JobState.SUCCEEDED],
    )


def summary_to_proto(summary: Summary) -> job_pb2.JobSummary:
    """A job in words."""
    return job_pb2.JobSummary(
        condition=job_pb2.JobCondition.Value(f"JOB_CONDITION_{summary.condition.name}"),
        headline=summary.headline,
        health=summary.health,
        happened=summary.happened,
        done=summary.done,
        advice=summary.advice,
        command=summary.command,
    )


def expected_end_to_proto(expected: ExpectedEnd) -> job_pb2.ExpectedEnd:
    """The expected end of a job, or why it is unknown."""
    message = job_pb2.ExpectedEnd(words=expected.words)
    if expected.interval is not None:
        earliest, latest = expected.interval
        message.earliest.CopyFrom(timestamp(earliest))
        message.latest.CopyFrom(timestamp(latest))
    return message


def workers_to_proto(cluster: Cluster, job: Job, members: Sequence[Member], after: int = 0) -> list[job_pb2.Worker]:
    """Some of the workers of a job that has its places, with their exits of the generations after one."""
    late = {(e.generation, e.rank): e for e in job.late_exits if e.generation > after}
    exits = [each for each in sorted(job.exits.items()) if each[0] > after]
    return [_worker(cluster, job, member, exits, late) for member in members]


def exit_group_to_proto(alike: Alike) -> job_pb2.ExitGroup:
    """Ranks that ended alike."""
    first = exit_to_proto(alike.first, alike.late)
    message = job_pb2.ExitGroup(first=first, ranks=spans_of(alike.ranks), count=len(alike.ranks))
    if alike.last_end:
        message.last_end_time.CopyFrom(timestamp(alike.last_end))
    return message


def dry_run_to_proto(found: DryRun, gang: Gang) -> job_pb2.DryRunJobResponse:
    """The fate of a job that was not submitted."""
    workers = [
        job_pb2.PlannedWorker(name=member.name, host=place.host, gpus=place.gpus)
        for member, place in zip(gang.members, found.places, strict=False)
    ]
    return job_pb2.DryRunJobResponse(
        starts=bool(workers),
        workers=workers,
        wait_reason=found.wait_reason,
        gives_way=found.gives_way,
        ahead=found.ahead,
        account=found.account,
    )


def error_to_proto(error: JobError) -> job_pb2.JobError:
    """The first cause of a job's end."""
    return job_pb2.JobError(
        code=error.code,
        message=error.message,
        details=error.details,
        exit_code=error.exit_code,
        rank=error.rank,
        raised=error.raised,
        why_final=error.why_final,
    )


def _worker(
    cluster: Cluster,
    job: Job,
    member: Member,
    ended: Sequence[tuple[int, Mapping[int, Exit]]],
    late: Mapping[tuple[int, int], Exit],
) -> job_pb2.Worker:
    started = job.started.get(member.index) or cluster.runtime_of(job.id).started.get(member.index)
    place = job.places[member.index]
    pids = started.pids if started else ()
    bound = dict(started.bindings) if started else {}
    exits = [
        exit_to_proto(records[rank], late.get((generation, rank)))
        for generation, records in ended
        for rank in member.ranks
        if rank in records
    ]
    return job_pb2.Worker(
        name=member.name,
        host=place.host,
        state=job_pb2.WorkerState.Value(f"WORKER_STATE_{_worker_state(cluster, job, member).name}"),
        shim_pid=started.shim_pid if started else 0,
        gpus=place.gpus,
        ranks=[
            job_pb2.Rank(
                rank=rank,
                local_rank=local,
                pid=pids[local] if local < len(pids) else 0,
                binding=codec.binding_to_proto(bound.get(rank)),
            )
            for local, rank in enumerate(member.ranks)
        ],
        exits=exits,
        warm=cluster.runtime_of(job.id).warm.get(member.index, "") if job.gang.warm else "",
    )


def _worker_state(cluster: Cluster, job: Job, member: Member) -> WorkerState:
    if member.index in job.placement.emptied:
        return WorkerState.ENDED
    if job.outcome is not None or job.vacating is not None:
        return WorkerState.STOPPING
    ended = job.exits_now()
    if job.launched and all(rank in ended for rank in member.ranks):
        return WorkerState.ENDED
    runtime = cluster.runtime_of(job.id)
    if member.index in job.started or member.index in runtime.started:
        return WorkerState.RUNNING
    return WorkerState.PREPARED if job.launched or member.index in runtime.prepared else WorkerState.ASSIGNED


def hang_to_proto(hang: Hang) -> job_pb2.Hang:
    """A hang as users see it."""
    message = job_pb2.Hang(
        number=hang.number,
        generation=hang.generation,
        since=timestamp(hang.since),
        noticed_at=timestamp(hang.noticed_at),
        rule=hang.rule.value,
        sentence=hang.sentence,
        suspects=map(str, hang.suspects),
        stacks=hang.stacks,
        outcome=hang.outcome.value if hang.outcome else "",
        note=hang.note,
        step=hang.step,
        found_by=hang_rule_to_proto(hang.rule),
        result=hang_outcome_to_proto(hang.outcome),
        suspect_ranks=rank_names_to_proto(hang.suspects),
    )
    if hang.diagnosed_at is not None:
        message.diagnosed_at.CopyFrom(timestamp(hang.diagnosed_at))
    if hang.judged_at is not None:
        message.judged_at.CopyFrom(timestamp(hang.judged_at))
    return message


def health_of(cluster: Cluster, job: Job) -> str:
    """The hang detector's current statement; empty if it does not watch the job."""
    runtime = cluster.runtime.get(job.id)
    return runtime.health if runtime is not None and not (job.terminal or job.stopping) else ""


def exit_to_proto(exit_: Exit, late: Exit | None = None) -> job_pb2.Exit:
    """How a rank ended, with a later truth if there is one."""
    message = codec.exit_to_proto(exit_)
    message.raised = shown_raised(exit_)
    if not message.raised:
        message.ClearField("raised")  # absent where there is nothing to say, as a code or a signal is
    if exit_.end_time:
        message.end_time.CopyFrom(timestamp(exit_.end_time))  # to the microsecond, as all times of the API
    if late is not None:
        message.late_exit.CopyFrom(exit_to_proto(late))
    return message


def recovery_to_proto(recovery: Recovery) -> job_pb2.Recovery:
    """A recovery as users see it."""
    message = job_pb2.Recovery(
        attempt=recovery.attempt,
        generation=recovery.generation,
        started_at=timestamp(recovery.started_at),
        start_type=recovery.start_type.value,
        end_reason=recovery.end_reason.value,
        end_related_task=related_in_words(recovery.related, recovery.end_reason),
        end_recover=recovery.recover.value,
        reason=end_reason_to_proto(recovery.end_reason),
        related=related_to_proto(recovery.related),
        kind=recovery_kind_to_proto(recovery.recover),
        injected=recovery.injected,
        in_process_ranks=recovery.in_process_ranks,
    )
    if recovery.warm is not None:
        message.warm = recovery.warm
    if recovery.ended_at is not None:
        message.ended_at.CopyFrom(timestamp(recovery.ended_at))
    spent, phases = phases_of(recovery), message.phases
    phases.detect.CopyFrom(_span(spent.detect_s))
    phases.diagnose.CopyFrom(_span(spent.diagnose_s))
    for field, seconds in (
        (phases.stop, spent.stop_s),
        (phases.start, spent.start_s),
        (phases.catch_up, spent.catch_up_s),
        (message.lost, spent.lost_s),
    ):
        if seconds is not None:
            field.CopyFrom(_span(seconds))
    return message


def _span(seconds: float) -> duration_pb2.Duration:
    return duration(max(seconds, 0.0))
