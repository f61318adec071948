"""Verbs of hangs: fold what agents see into a verdict, have evidence taken, and act as the job asks.

The rules are ``holdfast.hang``'s. Here their orders meet the job: a notice becomes an event that the user sees, a
diagnosis is asked of every host, and an order to act becomes the next generation in place, within the budget of
hang restarts, or the job's end. Nothing is judged before every worker was heard of, and nothing of it is remembered
across a restart of this controller, which makes the detector slower then, never rasher.
"""

from __future__ import annotations

from holdfast.hang import verdict
from holdfast.hang.common_cause import SuspectJob, common_cause
from holdfast.hang.evidence import diagnosis
from holdfast.hang.ladder import Rung
from holdfast.hang.rules import Finding
from holdfast.hang.tuning import Action
from holdfast.hang.watch import JobWatch, begin, hold
from holdfast_controller.core import events as ev
from holdfast_controller.core.actions import KeepEvidence, Refuse, Reply, TakeEvidence
from holdfast_controller.core.exits import HangRestart, restart_gang
from holdfast_controller.core.job import JobState
from holdfast_controller.core.model import Dump, ExitReason, Hang, Job, JobError, Runtime
from holdfast_controller.core.steps import Step
from holdfast_controller.core.stimuli import EvidenceArrived, FeaturesReported, HoldAsked
from holdfast_controller.core.stop import end, unknown_job

LOOK_EVERY_S = 5.0
"""At least so often each job is judged; a heartbeat's time."""
LOOK_AFTER_NEWS_S = 0.25
"""News of many workers that come together are judged together."""
ABORTED = 10


def on_features(step: Step, reported: FeaturesReported) -> None:
    """Take a worker's newest vector in, onto our clock, and look at the job soon."""
    job = step.cluster.jobs.get(reported.job_id)
    index = job.gang.index_by_name.get(reported.features.worker) if job is not None else None
    if job is None or index is None or not _is_current(job, index, reported.host, reported.generation):
        return
    vector = reported.features.shifted(step.now.mono - reported.sent_s)
    step.cluster.runtime_of(job.id).features[index] = vector
    _look_by(step, job, step.now.mono + LOOK_AFTER_NEWS_S)


def _is_current(job: Job, index: int, host: str, generation: int) -> bool:
    placed = index < len(job.places) and job.places[index].host == host
    return placed and generation == job.generation and job.launched and job.outcome is None


def _look_by(step: Step, job: Job, at: float) -> None:
    key = ("hang", job.id)
    if key not in step.timers.due or step.timers.due[key] > at:
        step.timers.set(key, at)


def on_look(step: Step, job: Job) -> None:
    """Judge a job by the newest vectors of all its workers, and do what follows."""
    runtime = step.cluster.runtime.get(job.id)
    if runtime is None or not job.launched or job.outcome is not None or job.gang.hang.action is Action.OFF:
        return
    _look_by(step, job, step.now.mono + LOOK_EVERY_S)
    if len(runtime.features) < len(job.places):
        return
    found = runtime.dump.diagnosis if runtime.dump else None
    known = _watch(step, job)
    fresh = known.suspicion is not None and known.suspicion.diagnosis is None
    workers = [runtime.features[index] for index in sorted(runtime.features)]
    result = verdict.step(
        known,
        workers,
        job.gang.hang,
        step.now.mono,
        diagnosis=found if fresh else None,
        brake=_brake(step, job),
    )
    step.cluster.watches[job.id] = (job.generation, result.watch)
    runtime.health = result.verdict.sentence
    for order in result.orders:
        _obey(step, job, runtime, result, order)
    if job.outcome is None and job.launched:
        _note_change(step, job, result)


def _watch(step: Step, job: Job) -> JobWatch:
    """What is remembered of this generation; of the one before only how long its start took."""
    generation, watch = step.cluster.watches.get(job.id, (0, None))
    if watch is None or generation != job.generation:
        watch = begin(step.now.mono, watch)
    if job.held_until is not None:
        watch = hold(watch, step.now.mono + job.held_until - step.now.wall)
    return watch


def _brake(step: Step, job: Job) -> str:
    """The common cause that this job's suspicion may have, in words; empty when there is none."""
    suspects = [
        SuspectJob(job_id, watch.suspicion.since_s, list(step.cluster.runtime_of(job_id).features.values()))
        for job_id, (_, watch) in step.cluster.watches.items()
        if watch.suspicion is not None and not step.cluster.jobs[job_id].terminal
    ]
    cause = common_cause(suspects) if len(suspects) > 1 or any(s.workers for s in suspects) else None
    return cause.sentence if cause is not None and job.id in cause.jobs else ""


def _obey(step: Step, job: Job, runtime: Runtime, result: verdict.Step, order: verdict.Order) -> None:
    match order:
        case verdict.Diagnose(suspects):
            _take_evidence(step, job, runtime, suspects)
        case verdict.Notify(finding):
            _notice(step, job, runtime, result.watch, finding)
        case verdict.WouldAct():
            step.emit(ev.HangJudged(job.id, step.now.wall, "WOULD_RESTART"))
        case verdict.Act(finding):
            if _open(job) is None:
                _notice(step, job, runtime, result.watch, finding)
            _act(step, job, result.verdict.sentence)


def _take_evidence(step: Step, job: Job, runtime: Runtime, suspects: tuple[str, ...]) -> None:
    ended = job.exits_now()
    live = [m for m in job.gang.members if not all(rank in ended for rank in m.ranks)]
    runtime.dump = Dump(suspects, {member.index for member in live})
    ranks = {int(name.rsplit(" ", 1)[-1]) for name in suspects if name.rsplit(" ", 1)[-1].isdigit()}
    for member in live:
        wanted = tuple(rank for rank in member.ranks if rank in ranks)
        step.do(TakeEvidence(job.places[member.index].host, job.id, job.generation, member.name, wanted))


def on_evidence(step: Step, arrived: EvidenceArrived) -> None:
    """Put a worker's dumps to the others'; with the last of them the diagnosis is made."""
    job = step.cluster.jobs.get(arrived.job_id)
    index = job.gang.index_by_name.get(arrived.worker) if job is not None else None
    if job is None or index is None or not _is_current(job, index, arrived.host, arrived.generation):
        return
    dump = step.cluster.runtime_of(job.id).dump
    if dump is None or index not in dump.awaited:
        return
    dump.awaited.discard(index)
    if arrived.evidence is not None:
        dump.parts.append(arrived.evidence)
    if arrived.content:
        dump.contents[arrived.worker] = arrived.content
    if _open(job) is not None:
        _keep(step, job, dump)
    if dump.awaited:
        return
    dump.diagnosis = diagnosis(dump.parts, step.now.mono)
    if _open(job) is not None:
        step.emit(ev.HangDiagnosed(job.id, step.now.wall, dump.diagnosis.words))
    _look_by(step, job, step.now.mono)


def _keep(step: Step, job: Job, dump: Dump) -> None:
    """Hand what has come over to the store, once."""
    for worker, content in dump.contents.items():
        step.do(KeepEvidence(job.id, job.hangs[-1].number, worker, content))
    dump.contents = {}


def _notice(step: Step, job: Job, runtime: Runtime, watch: JobWatch, finding: Finding) -> None:
    since = watch.still_since_s if watch.still_since_s is not None else watch.output.last_s
    member_of = {f"{m.name} rank {rank}": m.index for m in job.gang.members for rank in m.ranks}
    hosts = dict.fromkeys(job.places[member_of[name]].host for name in finding.suspects if name in member_of)
    step.emit(
        ev.HangNoticed(
            job.id,
            step.now.wall,
            job.generation,
            step.now.wall - max(step.now.mono - since, 0.0),
            finding.rule.value,
            finding.sentence,
            finding.suspects,
            tuple(hosts),
            _highest_step(runtime),
        )
    )
    if runtime.dump is not None:
        _keep(step, job, runtime.dump)
        if runtime.dump.diagnosis is not None:
            step.emit(ev.HangDiagnosed(job.id, step.now.wall, runtime.dump.diagnosis.words))


def _act(step: Step, job: Job, sentence: str) -> None:
    """Relaunch in place, unless as many restarts in a row as the job allows have led nowhere."""
    hang = job.hangs[-1]
    reached = _highest_step(step.cluster.runtime_of(job.id))
    restarts = 1 if _progressed(step, job, reached) else job.hang_restarts + 1
    if restarts > job.gang.max_hang_restarts:
        step.emit(ev.HangJudged(job.id, step.now.wall, "BUDGET_SPENT", _again(job, hang)))
        where = f" past step {job.hang_step:g}" if job.hang_step is not None else ""
        times = f"{job.hang_restarts} restarts" if job.hang_restarts != 1 else "1 restart"
        message = f"The job hangs again after {times} in a row without progress{where}: {sentence}."
        error = JobError(ABORTED, message, (hang.stacks,) if hang.stacks else ())
        end(step, job, JobState.FAILED, error, stop_reason=ExitReason.HANG_KILLED)
        return
    step.emit(ev.HangJudged(job.id, step.now.wall, "RESTARTED", _again(job, hang)))
    restart_gang(
        step,
        job,
        end_reason="HANG",
        related=" and ".join(hang.suspects) or "no rank in particular",
        failed_at=hang.since,
        stop_reason=ExitReason.HANG_KILLED,
        hang=HangRestart(
            restarts,
            reached if reached is not None else job.hang_step,
            hang.noticed_at - hang.since,
            step.now.wall - hang.noticed_at,
        ),
    )


def _progressed(step: Step, job: Job, reached: float | None) -> bool:
    """Whether the job got past where it hung last: by its highest step, or by a checkpoint since."""
    if not job.hang_restarts:
        return True
    if reached is not None or job.hang_step is not None:
        return reached is not None and (job.hang_step is None or reached > job.hang_step)
    began = step.cluster.watches[job.id][1].began_s
    grown = (f.output.last_checkpoint_s for f in step.cluster.runtime_of(job.id).features.values())
    return any(at is not None and at > began for at in grown)


def _again(job: Job, hang: Hang) -> str:
    """What is to be said when a host is suspect for a second time."""
    earlier = {host for old in job.hangs[:-1] for host in old.hosts if old.outcome in ("RESTARTED", "BUDGET_SPENT")}
    again = [host for host in hang.hosts if host in earlier]
    if not again:
        return ""
    return f"{again[0]} is suspect for the second time and should be replaced, which is not done by itself yet"


def _highest_step(runtime: Runtime) -> float | None:
    steps = [f.output.step for f in runtime.features.values() if f.output.step is not None]
    return max(steps, default=None)


def _open(job: Job) -> Hang | None:
    """The hang that was told and has not ended; a mere withholding leaves it open."""
    if not job.hangs or job.hangs[-1].generation != job.generation:
        return None
    hang = job.hangs[-1]
    return hang if hang.outcome in ("", "WITHHELD", "WOULD_RESTART") else None


def _note_change(step: Step, job: Job, result: verdict.Step) -> None:
    """Tell when a told hang has ended by itself, or why a confirmed one isn't acted on."""
    hang = _open(job)
    if hang is None:
        return
    why = result.verdict.withheld
    if result.watch.rung is Rung.HEALTHY:
        step.emit(ev.HangOver(job.id, step.now.wall, result.verdict.sentence))
    elif why and job.gang.hang.action is Action.RESTART and not hang.outcome:
        step.emit(ev.HangJudged(job.id, step.now.wall, "WITHHELD", why))


def on_hold(step: Step, asked: HoldAsked) -> None:
    """Suspend action on hangs, or end that."""
    job = step.cluster.jobs.get(asked.job_id)
    if job is None:
        step.do(Refuse(asked.token, unknown_job(asked.job_id)))
        return
    until = step.now.wall + asked.duration_s if asked.duration_s > 0 else None
    if not job.terminal and (until is not None or job.held_until is not None):
        step.emit(ev.JobHeld(job.id, step.now.wall, asked.by, until))
    step.do(Reply(asked.token, job.id))
