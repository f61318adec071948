"""Events of a job as the watch sends them: ``JobEvent`` of the contract, one kind for each stored type."""

from __future__ import annotations

from typing import assert_never

from google.protobuf.timestamp_pb2 import Timestamp

from holdfast.hang.judge.finding import Rule
from holdfast.v1 import job_pb2, spec_pb2
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.injection import Fault
from holdfast_controller.core.model.job import Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import Budget
from holdfast_controller.shell.convert.job_to_proto import error_to_proto, exit_to_proto, timestamp
from holdfast_controller.shell.convert.recovery_to_proto import (
    budget_to_proto,
    end_reason_to_proto,
    hang_outcome_to_proto,
    hang_rule_to_proto,
    rank_names_to_proto,
    recovery_kind_to_proto,
    related_to_proto,
)

_Event = job_pb2.JobEvent


def event_to_proto(event: ev.JobEvent, gang: Gang) -> job_pb2.JobEvent:
    """The event of a job with this gang, without what only the controller needs, and without secrets."""
    match event:
        case ev.JobSubmitted():
            return _Event(submitted=_Event.Submitted(owner=event.owner))
        case ev.JobQueued():
            return _Event(queued=_Event.Queued(reason=event.reason))
        case ev.DependencyEnded():
            ended = _Event.DependencyEnded(job=event.on, state=_state(event.state), met=event.met)
            return _Event(dependency_ended=ended)
        case ev.TurnCame():
            return _Event(turn_came=_Event.TurnCame())
        case ev.PlacementTried():
            tried = _Event.PlacementTried(
                number=event.number, reason=event.reason, not_before=timestamp(event.not_before)
            )
            return _Event(placement_tried=tried)
        case ev.JobPlaced():
            hosts = [place.host for place in event.places]
            placed = _Event.Placed(
                attempt=event.attempt,
                generation=event.generation,
                hosts=hosts,
                loan_of=event.loan_of,
                ahead_of=event.ahead_of,
                spare_hosts=[spare.host for spare in event.spares],
            )
            return _Event(placed=placed)
        case ev.JobSparesChanged():
            hosts = [spare.host for spare in event.spares]
            return _Event(spares_changed=_Event.SparesChanged(hosts=hosts))
        case ev.PreparationNoted():
            return _Event(preparing=_Event.Preparing(worker=event.worker, host=event.host, doing=event.doing))
        case ev.GangLaunched():
            launched = _Event.Launched(
                generation=event.generation,
                master_address=event.rendezvous.master_address,
                master_port=event.rendezvous.master_port,
            )
            return _Event(launched=launched)
        case ev.GangStarted():
            return _Event(started=_Event.Started(generation=event.generation))
        case ev.RankExited():
            exit_ = exit_to_proto(event.exit)
            return _Event(rank_exited=_Event.RankExited(worker=event.worker, exit=exit_))
        case ev.LateExitFound():
            exit_ = exit_to_proto(event.exit)
            return _Event(late_exit_found=_Event.LateExitFound(worker=event.worker, exit=exit_))
        case ev.WorkerLaunched():
            return _Event(worker_launched=_Event.WorkerLaunched(worker=event.worker, generation=event.generation))
        case ev.WorkerStarted():
            return _Event(worker_started=_Event.WorkerStarted(worker=event.worker, generation=event.generation))
        case ev.RestartDecided() | ev.AttemptEnded() | ev.CauseFound():
            return _of_recovery(event, gang)
        case ev.PauseRequested():
            return _Event(pause_requested=_Event.PauseRequested(by=event.by, due=_maybe(event.due)))
        case ev.JobWarned():
            warned = _Event.Warned(
                generation=event.generation, signal=event.signal, until=timestamp(event.until), why=event.why
            )
            return _Event(warned=warned)
        case ev.JobPaused():
            return _Event(paused=_Event.Paused())
        case ev.JobDeleted():
            return _Event(deleted=_Event.Deleted(by=event.by))
        case ev.OutputDeleted() | ev.JobPurged():
            return _Event()  # of a deleted job, which is not watched
        case ev.JobResumed():
            return _Event(resumed=_Event.Resumed(by=event.by))
        case (
            ev.HangNoticed() | ev.HangDiagnosed() | ev.HangJudged() | ev.HangStuck() | ev.HangOver() | ev.JobHeld()
        ):
            return _of_hang(event)
        case ev.FaultInjected():
            injected = _Event.FaultInjected(
                by=event.by,
                rank=job_pb2.RankName(worker=event.worker, rank=event.rank),
                generation=event.generation,
                fault=job_pb2.FaultKind.Value(f"FAULT_KIND_{event.fault.name}"),
                until=timestamp(event.until) if event.fault is not Fault.KILL else None,
                speed_percent=event.speed,
            )
            return _Event(fault_injected=injected)
        case ev.FaultNotInjected():
            refused = _Event.FaultNotInjected(
                rank=job_pb2.RankName(worker=event.worker, rank=event.rank),
                generation=event.generation,
                reason=event.why,
            )
            return _Event(fault_not_injected=refused)
        case ev.WorldApart():
            apart = _Event.WorldApart(generation=event.generation, worker=event.worker, processes=event.processes)
            return _Event(world_apart=apart)
        case ev.CaughtUp():
            return _Event(caught_up=_Event.CaughtUp(generation=event.generation, step=event.step))
        case ev.ProgressRecorded():
            last = event.progress.last
            step = last.step if last is not None and last.of is None else None
            recorded = _Event.ProgressRecorded(generation=event.generation, last_step=step)
            return _Event(progress_recorded=recorded)
        case ev.PrimaryCompleted():
            return _Event(primary_completed=_Event.PrimaryCompleted())
        case ev.CancelRequested():
            return _Event(cancel_requested=_Event.CancelRequested(by=event.by))
        case ev.JobEnding():
            return _Event(ending=_Event.Ending(outcome=_state(event.outcome), error=_error(event.error)))
        case ev.JobEnded():
            return _Event(ended=_Event.Ended(state=_state(event.state), error=_error(event.error)))
        case ev.OutputArchived():
            return _Event(output_archived=_Event.OutputArchived(worker=event.worker, problem=event.problem))
        case ev.WorkerEmptied():
            return _Event(worker_emptied=_Event.WorkerEmptied(worker=event.worker))
        case ev.WorkerFenced():
            return _Event(worker_fenced=_Event.WorkerFenced(worker=event.worker, vouched=event.vouched))
        case ev.MaintenanceAhead():
            ahead = _Event.MaintenanceAhead(host=event.host, start=timestamp(event.start), reason=event.reason)
            return _Event(maintenance_ahead=ahead)
        case ev.UnderuseNoticed():
            noticed = _Event.UnderuseNoticed(
                generation=event.generation, idle=event.idle, gpus=event.gpus, unknown=event.unknown
            )
            noticed.since.CopyFrom(timestamp(event.since))
            if event.action is not None:
                noticed.action = spec_pb2.UnderuseAction.Value(event.action.value)
            return _Event(underuse_noticed=noticed)
        case ev.UnderuseOver():
            return _Event(underuse_over=_Event.UnderuseOver(generation=event.generation))
        case ev.SlowdownNoticed():
            slow = _Event.SlowdownNoticed(
                generation=event.generation,
                since=timestamp(event.since),
                best_ms=event.best_ms,
                recent_ms=event.recent_ms,
                waited_for=event.waited_for,
            )
            for each in event.named:
                slow.named.add(rank=each.rank, host=each.host, signs=[sign.value for sign in each.signs])
            return _Event(slowdown_noticed=slow)
        case ev.SlowdownOver():
            return _Event(slowdown_over=_Event.SlowdownOver(generation=event.generation))
        case ev.NotificationGivenUp():
            given_up = _Event.NotificationGivenUp(notice=event.notice.name, to=event.to, reason=event.reason)
            return _Event(notification_given_up=given_up)
        case ev.JobFound():
            hosts = [place.host for place in event.places]
            newest = max(event.generations)
            return _Event(found=_Event.Found(attempt=event.attempt, generation=newest, hosts=hosts))
        case ev.JobUnsure():
            return _Event(unsure=_Event.Unsure(generation=event.generation, reason=event.reason))
        case ev.JobCleared():
            return _Event(reconciled=_Event.Reconciled(reason=event.reason))
        case _:
            assert_never(event)


def _of_recovery(event: ev.RestartDecided | ev.AttemptEnded | ev.CauseFound, gang: Gang) -> job_pb2.JobEvent:
    reason, related = end_reason_to_proto(event.end_reason), related_to_proto(event.related)
    match event:
        case ev.CauseFound():
            return _Event(
                cause_found=_Event.CauseFound(generation=event.generation, reason=reason, related=related)
            )
        case ev.RestartDecided():
            restarting = _Event.Restarting(
                generation=event.generation,
                worker="" if event.worker is None else gang.members[event.worker].name,
                reason=reason,
                related=related,
                budget=budget_to_proto(event.failure.budget if event.failure else Budget.NONE),
                hang_restarts=event.hang_restarts or 0,
                not_before=_maybe(event.not_before),
            )
            return _Event(restarting=restarting)
        case ev.AttemptEnded():
            ended = _Event.AttemptEnded(
                pausing=event.leaving is Leaving.PAUSE,
                reason=reason,
                related=related,
                kind=recovery_kind_to_proto(event.recover),
                budget=budget_to_proto(event.budget),
                avoided_hosts=event.avoid,
                hang_restarts=event.hang_restarts or 0,
                not_before=_maybe(event.not_before),
            )
            return _Event(attempt_ended=ended)
        case _:
            assert_never(event)


def _of_hang(
    event: ev.HangNoticed | ev.HangDiagnosed | ev.HangJudged | ev.HangStuck | ev.HangOver | ev.JobHeld,
) -> job_pb2.JobEvent:
    match event:
        case ev.HangNoticed():
            noticed = _Event.HangNoticed(
                generation=event.generation,
                since=timestamp(event.since),
                rule=hang_rule_to_proto(event.rule),
                sentence=event.sentence,
                suspects=rank_names_to_proto(event.suspects),
                hosts=event.hosts,
                step=event.step,
                act_time=_maybe(event.acts_at),
            )
            return _Event(hang_noticed=noticed)
        case ev.HangDiagnosed():
            diagnosed = _Event.HangDiagnosed(
                stacks=event.stacks,
                suspects=rank_names_to_proto(event.suspects),
                hosts=event.hosts,
                rule=_rule(event.rule),
                sentence=event.sentence,
                since=_maybe(event.since),
            )
            return _Event(hang_diagnosed=diagnosed)
        case ev.HangJudged():
            judged = _Event.HangJudged(
                outcome=hang_outcome_to_proto(event.outcome),
                note=event.note,
                suspects=rank_names_to_proto(event.suspects),
                hosts=event.hosts,
                rule=_rule(event.rule),
                sentence=event.sentence,
                since=_maybe(event.since),
            )
            return _Event(hang_judged=judged)
        case ev.HangStuck():
            return _Event(hang_stuck=_Event.HangStuck(worker=event.worker, host=event.host, why=event.why))
        case ev.HangOver():
            return _Event(hang_over=_Event.HangOver(note=event.note))
        case ev.JobHeld():
            changed = _Event.HangActionChanged(by=event.by, suspended_until=_maybe(event.until))
            return _Event(hang_action_changed=changed)
        case _:
            assert_never(event)


def _rule(rule: Rule | None) -> job_pb2.HangRule.ValueType:
    return hang_rule_to_proto(rule) if rule is not None else job_pb2.HANG_RULE_UNSPECIFIED


def _maybe(wall_s: float | None) -> Timestamp | None:
    return timestamp(wall_s) if wall_s is not None else None


def _error(error: JobError | None) -> job_pb2.JobError | None:
    return error_to_proto(error) if error is not None else None


def _state(state: JobState) -> job_pb2.JobState.ValueType:
    return job_pb2.JobState.Value(f"JOB_STATE_{state.name}")
