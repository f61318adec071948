"""Hang detection of a job: agents' features become a verdict; evidence is recorded; the job's action follows.

The rules are ``holdfast.hang``'s. Here their orders meet the job: a notice becomes an event that the user sees, a
diagnosis is asked of every host, and an order to act becomes the next generation in place, within the budget of
hang restarts, or the job's end. Nothing is judged before every worker was heard of. Across a restart of this
controller what was learned of a job is remembered (``watch_cache``) and a suspicion is not, so the evidence is
recorded again; a hang that was notified stays open until progress is seen.
"""

from __future__ import annotations

import math

from holdfast._base.dataclass import replace
from holdfast._base.job_file.choices import HangAction
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge import verdict
from holdfast.hang.judge.common_cause import CommonCause
from holdfast.hang.judge.finding import Finding, Rule
from holdfast.hang.judge.state import begin, give_up, pause_reason
from holdfast.hang.judge.watch import JobWatch
from holdfast.hang.pipeline.features import WorkerFeatures
from holdfast_controller.core import events as ev
from holdfast_controller.core.hangs.common_cause import (
    forget_passed,
    note_hang,
    note_relaunched,
    note_suppressed,
    why_braked,
)
from holdfast_controller.core.hangs.evidence import counts_of, keep, take_again, take_evidence, take_in
from holdfast_controller.core.hangs.features import of_member, vectors_of
from holdfast_controller.core.hangs.progress import note_progress
from holdfast_controller.core.hangs.restart import act, highest_step, hosts_of, revised
from holdfast_controller.core.hangs.suspects import note_suspect, shared_cause
from holdfast_controller.core.hangs.watch_cache import keep_watch
from holdfast_controller.core.lifecycle import drain
from holdfast_controller.core.lifecycle.slowness import note_pace
from holdfast_controller.core.lifecycle.underuse import note_gpus
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.hang import Hang, HangOutcome
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.recovery import ranks_named
from holdfast_controller.core.model.runtime import Runtime
from holdfast_controller.core.step.actions import Reply
from holdfast_controller.core.step.commands import EvidenceArrived, FeaturesReported, HoldAsked
from holdfast_controller.core.step.lookup import find_job
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

LOOK_EVERY_S = 5.0
"""At least so often each job is judged; a heartbeat's time."""
LOOK_AFTER_NEWS_S = 0.25
"""News of many workers that come together are judged together."""
LOOK_PER_RANK_S = 0.0005
"""A look costs in proportion to the ranks: those of a big gang are spaced out, so that they stay a small share."""


# --- What agents say ----------------------------------------------------------------------------------------------


def on_features(step: Step, reported: FeaturesReported) -> None:
    """Take a worker's newest vector in, onto our clock, and look at the job soon."""
    job = step.cluster.jobs.get(reported.job_id)
    index = job.gang.index_by_name.get(reported.features.worker) if job is not None else None
    if job is None or index is None or not _is_current(job, index, reported.host, reported.generation):
        return
    vector = of_member(reported.features, job.gang.members[index])
    runtime = step.cluster.runtime_of(job.id)
    runtime.features[index] = vector.shifted(step.now.mono - reported.sent_s)
    take_again(step, job, runtime, index)
    _note_catching_up(step, job, reported.features.output.step)
    _note_world_apart(step, job, vector)
    note_progress(step, job, index, runtime.features[index])
    note_gpus(step, job, index)
    note_pace(step, job)
    if step.cluster.draining:
        drain.on_progress(step, job)
    if _is_judged(job):
        wait_s = min(LOOK_AFTER_NEWS_S + LOOK_PER_RANK_S * job.gang.rank_count, LOOK_EVERY_S)
        _look_by(step, job, step.now.mono_in(wait_s))


def _note_catching_up(step: Step, job: Job, reached: float | None) -> None:
    """Tell when the job is back where it was before its last recovery."""
    last = job.recoveries[-1] if job.recoveries else None
    if last is None or last.step is None or last.caught_up_at is not None or reached is None or not job.started:
        return
    if reached >= last.step and last.generation == job.generation:
        step.emit(ev.CaughtUp(job_id=job.id, at=step.now.wall, generation=job.generation, step=reached))


def _note_world_apart(step: Step, job: Job, vector: WorkerFeatures) -> None:
    """Tell once per launch of the gang that a worker's processes are a world of their own."""
    if vector.own_world and not job.launch.world_apart:
        step.emit(
            ev.WorldApart(
                job_id=job.id,
                at=step.now.wall,
                generation=job.generation,
                worker=vector.worker,
                processes=vector.own_world,
            )
        )


def on_evidence(step: Step, arrived: EvidenceArrived) -> None:
    """Put a worker's dumps to the others'; with the last of them the diagnosis is made."""
    job = step.cluster.jobs.get(arrived.job_id)
    index = job.gang.index_by_name.get(arrived.worker) if job is not None else None
    if job is None or index is None or not _is_current(job, index, arrived.host, arrived.generation):
        return
    dump = take_in(step, job, index, arrived)
    if dump is None:
        return
    if _open(job) is not None:
        keep(step, job, dump)
    if dump.diagnosis is not None:
        _look_by(step, job, step.now.mono)


def _is_current(job: Job, index: int, host: str, generation: int) -> bool:
    placed = index < len(job.places) and job.places[index].host == host
    return placed and generation == job.generation_of(index) and job.launched and not job.stopping


def _is_judged(job: Job) -> bool:
    """A gang whose primary is done may stand still: it ends by itself, or is ended when its grace is over."""
    runs = job.launched and not job.stopping and job.launch.primary_done_at is None and job.unreconciled is None
    return runs and job.gang.hang.action is not HangAction.OFF


# --- The look -----------------------------------------------------------------------------------------------------


def _look_by(step: Step, job: Job, at: Mono) -> None:
    key = (JobTimer.HANG, job.id)
    if key not in step.timers.due or step.timers.due[key] > at:
        step.timers.set(key, at)


def on_look(step: Step, job: Job) -> None:
    """Judge a job by the newest vectors of all its workers, and do what follows."""
    runtime = step.cluster.runtime.get(job.id)
    if runtime is None or not _is_judged(job):
        return
    _look_by(step, job, step.now.mono_in(LOOK_EVERY_S))
    workers, missing = vectors_of(job, runtime, step.now)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        runtime.health = f"nothing was heard of {', '.join(missing[:3])}{more} yet: blind, not hung"
        return
    known = _watch(step, job)
    brake = _Brake(step, job)
    result = verdict.step(
        known,
        workers,
        job.gang.hang,
        step.now.mono,
        diagnosis=_fresh_diagnosis(known, runtime),
        counts=counts_of(runtime),
        brake=brake.why,
    )
    step.cluster.watches[job.id] = (job.generation, result.watch)
    keep_watch(step, job, result.watch)
    suspicion = result.watch.suspicion
    # What a rank does to itself, or has had done to it on purpose, is no sign of a fault that jobs share.
    rehearsed = job.is_rehearsed(job.generation, step.now.wall)
    shares = suspicion is not None and not suspicion.finding.internal and not rehearsed
    note_suspect(step.cluster, job, suspicion.since_s if suspicion and shares else None, workers)
    forget_passed(step.cluster, job, step.now.mono)
    if brake.cause is not None and result.verdict.suppressed == brake.cause.sentence:
        note_suppressed(step, job, brake.cause)
    runtime.health = result.verdict.sentence
    for order in result.orders:
        _obey(step, job, runtime, result.verdict, order)
    if _is_judged(job):
        _note_change(step, job, runtime, workers, result, kept=brake.acts or _is_held(step, job))


class _Brake:
    """The common cause that keeps a job from being acted on. Looked for once it would be: among all suspects."""

    def __init__(self, step: Step, job: Job) -> None:
        self._step, self._job = step, job
        self.cause: CommonCause | None = None
        self.acts = False

    def why(self) -> str:
        """Why the job may not be acted on now; empty where it may."""
        hang, now_s = _open(self._job), self._step.now.mono
        if hang is not None and hang.outcome is HangOutcome.WOULD_RESTART:
            return ""
        self.cause = shared_cause(self._step.cluster, self._job, now_s)
        why = why_braked(self._step.cluster, self._job, self.cause, now_s)
        self.acts = bool(why)
        return why


def _fresh_diagnosis(known: JobWatch, runtime: Runtime) -> Diagnosis | None:
    """The diagnosis that the suspicion still waits for, if it is there."""
    waits = known.suspicion is not None and known.suspicion.diagnosis is None
    return runtime.dump.diagnosis if waits and runtime.dump is not None else None


def _watch(step: Step, job: Job) -> JobWatch:
    """The watch of this generation; a new one keeps of the one before only how long its start took."""
    generation, watch = step.cluster.watches.get(job.id, (0, None))
    if watch is None or generation != job.generation:
        watch = begin(step.now.mono, watch)
    held_s = None if job.held_until is None else step.now.mono_of(job.held_until)
    return replace(watch, hold_until_s=held_s)


def _is_held(step: Step, job: Job) -> bool:
    return job.held_until is not None and step.now.wall < job.held_until


def _obey(step: Step, job: Job, runtime: Runtime, found: verdict.Verdict, order: verdict.Order) -> None:
    match order:
        case verdict.Diagnose(suspects):
            take_evidence(step, job, runtime, ranks_named(suspects))
        case verdict.Notify(finding):
            _tell(step, job, runtime, finding)
        case verdict.WouldAct():
            pass  # The verdict says that it is suppressed, and why: see _note_change.
        case verdict.Act(finding, _, repeats):
            _tell(step, job, runtime, finding)
            _tell_diagnosis(step, job, runtime, finding)
            if why := act(step, job, runtime, finding, found.sentence, repeats):
                generation, watch = step.cluster.watches[job.id]
                step.cluster.watches[job.id] = generation, give_up(watch, why)
                _look_by(step, job, step.now.mono)
            else:
                note_relaunched(step, job)


# --- Users' notifications -----------------------------------------------------------------------------------------


def _open(job: Job) -> Hang | None:
    """The open hang of this generation; None where there is none."""
    if not job.hangs or job.hangs[-1].generation != job.generation:
        return None
    return job.hangs[-1] if job.hangs[-1].open else None


def _tell(step: Step, job: Job, runtime: Runtime, finding: Finding) -> None:
    """Notify the user of a hang, unless it is open already, from before a gap in the reports or our restart."""
    if _open(job) is not None:
        return
    step.emit(
        ev.HangNoticed(
            job_id=job.id,
            at=step.now.wall,
            generation=job.generation,
            since=step.now.wall_of(min(Mono(finding.since_s), step.now.mono)),
            rule=finding.rule,
            sentence=finding.sentence,
            suspects=ranks_named(finding.suspects),
            hosts=hosts_of(job, ranks_named(finding.suspects)),
            step=highest_step(runtime),
            acts_at=step.now.wall_of(Mono(finding.act_at_s)) if finding.act_at_s < math.inf else None,
        )
    )
    note_hang(step, job)
    if runtime.dump is not None:
        keep(step, job, runtime.dump)


def _tell_diagnosis(step: Step, job: Job, runtime: Runtime, finding: Finding | None) -> None:
    dump = runtime.dump
    if dump is None or dump.diagnosis is None or dump.told:
        return
    dump.told = True
    suspects = ranks_named(finding.suspects) if finding is not None else ()
    diagnosed = ev.HangDiagnosed(
        job_id=job.id,
        at=step.now.wall,
        stacks=dump.diagnosis.words,
        suspects=suspects,
        hosts=hosts_of(job, suspects),
    )
    step.emit(revised(step, job, diagnosed, finding) if finding is not None else diagnosed)


def _note_change(
    step: Step, job: Job, runtime: Runtime, workers: list[WorkerFeatures], result: verdict.Step, *, kept: bool
) -> None:
    """Tell what the dumps say, why a confirmed hang isn't acted on, or that it has ended by itself.

    ``kept``: a hold or a common cause keeps hands off whatever the job's setting is.
    """
    finding, why = result.verdict.finding, result.verdict.suppressed
    if finding is not None and why:
        _tell(step, job, runtime, finding)
    hang = _open(job)
    if hang is not None:
        _tell_diagnosis(step, job, runtime, finding)
        if finding is not None and why:
            notify_only = job.gang.hang.action is HangAction.NOTIFY and not kept
            outcome = HangOutcome.WOULD_RESTART if notify_only else HangOutcome.SUPPRESSED
            if hang.outcome is None or (notify_only and hang.outcome is HangOutcome.SUPPRESSED):
                note = "" if notify_only else why
                suspects = ranks_named(finding.suspects)
                judged = ev.HangJudged(
                    job_id=job.id,
                    at=step.now.wall,
                    outcome=outcome,
                    note=note,
                    suspects=suspects,
                    hosts=hosts_of(job, suspects),
                )
                step.emit(revised(step, job, judged, finding))
        elif over := result.verdict.over or _over_meanwhile(step, hang, workers, result):
            step.emit(ev.HangOver(job_id=job.id, at=step.now.wall, note=over))
    if result.watch.suspicion is None:
        runtime.dump = runtime.counts = None


def _over_meanwhile(step: Step, hang: Hang, workers: list[WorkerFeatures], result: verdict.Step) -> str:
    """Why a hang is over whose suspicion was forgotten, as by our restart; empty where nothing is seen to move.

    Not to find it any more is not enough. Its suspects must work, or any rank where it has none.
    """
    known = result.watch
    if known.suspicion is not None or result.verdict.finding is not None or result.verdict.blind:
        return ""
    if pause_reason(workers):
        return ""
    noticed_s = step.now.mono_of(hang.noticed_at)
    if hang.rule is Rule.SILENCE and known.output.last_s > noticed_s:
        return "its output goes on"
    if hang.rule is Rule.WORKING_RANK and known.lone_since_s is None and known.output.last_s > noticed_s:
        return "its ranks no longer wait for one"
    suspects = {(suspect.worker, suspect.rank) for suspect in hang.suspects}
    for worker in workers:
        for rank in worker.ranks:
            named = not suspects or (worker.worker, rank.rank) in suspects
            if named and hang.rule is not Rule.WORKING_RANK and (rank.last_work_s or 0.0) > noticed_s:
                return f"{worker.worker} rank {rank.rank} works"
    return result.verdict.sentence if known.by_frames else ""


# --- What users ask for -------------------------------------------------------------------------------------------


def on_hold(step: Step, asked: HoldAsked) -> None:
    """Suspend action on hangs, or end that."""
    job = find_job(step, asked.token, asked.job_id)
    if job is None:
        return
    until = step.now.wall_in(asked.duration_s) if asked.duration_s > 0 else None
    if not job.terminal and (until is not None or job.held_until is not None):
        step.emit(ev.JobHeld(job_id=job.id, at=step.now.wall, by=asked.by, until=until))
    step.do(Reply(asked.token, job.id))
