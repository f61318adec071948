"""How each look at a job's workers changes what the detector remembers of it (``watch.JobWatch``).

The watch is a value: the controller journals it as it is, and a replay folds the same vectors into the same
watch. Time without samples, and time that doesn't count, moves the remembered past on instead of becoming a
silence.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._base.backoff import wait_s
from holdfast._base.dataclass import replace
from holdfast.hang.evidence.stacks import Diagnosis
from holdfast.hang.judge.finding import Finding
from holdfast.hang.judge.snapshot import Counts, Seen, View
from holdfast.hang.judge.stages import Rung, climb
from holdfast.hang.judge.waiting import Gang, Patience
from holdfast.hang.judge.watch import JobWatch, Lesson
from holdfast.hang.pipeline.features import GpuLook, Motion, RankFeatures, WorkerFeatures
from holdfast.hang.pipeline.phase import Phase, facts_of, next_phase
from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.pipeline.waits import WaitKind
from holdfast.hang.thresholds import Tuning


def begin(now_s: float, earlier: JobWatch | None = None) -> JobWatch:
    """The watch of a new generation: it keeps how long an earlier start-up took, and what the last restart taught."""
    took_s = None
    if earlier is not None:
        took_s = earlier.earlier_start_s if earlier.started_s is None else earlier.started_s - earlier.began_s
    return JobWatch(
        began_s=now_s,
        seen_s=now_s,
        output=ProgressRate.begin(now_s),
        moved_s=now_s,
        earlier_start_s=took_s,
        lesson=earlier.lesson if earlier is not None else None,
    )


def learned(watch: JobWatch, finding: Finding, view: View) -> JobWatch:
    """The watch after an order to act on the finding, for the generation that follows."""
    ran_s = finding.since_s - watch.began_s
    return replace(
        watch,
        lesson=Lesson(
            finding.signature, view.step, ran_s, view.times_before(finding.signature, finding.since_s) + 1
        ),
    )


def give_up(watch: JobWatch, why: str) -> JobWatch:
    """The watch after an order to act that was not followed, and will not be: the hang stays noticed until it moves."""
    return replace(watch, rung=Rung.NOTICED, given_up=why)


def stuck(watch: JobWatch) -> JobWatch:
    """The hang was acted on, and the place could not be proven empty. Raises ValueError when it wasn't acted on."""
    return replace(watch, rung=climb(watch.rung, Rung.STUCK))


# -- Observing ---------------------------------------------------------------------------------------------------


def forgive_unwatched(watch: JobWatch, now_s: float, tuning: Tuning) -> JobWatch:
    """Forgives a pause between two looks that is too long to have been a look."""
    away_s = now_s - watch.seen_s
    return forgive(watch, away_s, now_s) if away_s > tuning.stale_s else watch


def forgive(watch: JobWatch, away_s: float, now_s: float) -> JobWatch:
    """The past, moved on by the time that doesn't count. A suspicion starts again: its silence was not watched."""
    return replace(
        watch,
        began_s=watch.began_s + away_s,
        started_s=None if watch.started_s is None else watch.started_s + away_s,
        first_work_s=None if watch.first_work_s is None else watch.first_work_s + away_s,
        output=watch.output.forgive(away_s),
        moved_s=now_s,
        stood_since_s=None,
        still_since_s=None,
        lone_since_s=None,
        rung=Rung.HEALTHY,
        suspicion=None,
        seen_s=now_s,
    )


def pause_reason(workers: Sequence[WorkerFeatures]) -> str:
    """Why nothing can be judged for now: the program declares itself idle, a debugger or a person is at work; or
    empty.
    """
    for worker in workers:
        if worker.declared_idle:
            return f"{worker.worker} declares itself idle: {worker.declared_idle}"
        if worker.traced:
            return f"a tracer is attached to {worker.worker}"
        for rank in worker.ranks:
            if waits_for_person(rank) and rank.wait is not None:
                where = " ".join(filter(None, [rank.wait.what, rank.wait.place]))
                return f"{worker.worker} rank {rank.rank} waits for a person" + (f" ({where})" if where else "")
    return ""


def waits_for_person(rank: RankFeatures) -> bool:
    """Whether a rank waits for what a person types: a breakpoint, a prompt, a debugger."""
    return rank.wait is not None and rank.wait.kind is WaitKind.PERSON and rank.motion is not Motion.STOPPED


def observe(
    watch: JobWatch,
    workers: Sequence[WorkerFeatures],
    diagnosis: Diagnosis | None,
    now_s: float,
    tuning: Tuning,
) -> JobWatch:
    """Takes in progress, first work and a diagnosis."""
    output = watch.output
    # Where some worker reports its progress itself, the lines of the others say nothing.
    tell = [w.output for w in workers if w.output.reported] or [w.output for w in workers]
    progress = [one.last_progress_s for one in tell if one.last_progress_s is not None]
    if progress and (newest := max(progress)) > output.last_s:
        output = output.observe(newest, tuning)
    gpus = [rank.gpu for worker in workers for rank in worker.ranks]
    works = bool(gpus) and all(gpu is not None and gpu.look is GpuLook.WORK for gpu in gpus)
    first_work_s = watch.first_work_s if watch.first_work_s is not None or not works else now_s
    watch = replace(watch, output=output, first_work_s=first_work_s)
    if watch.started_s is None and _has_started(watch, now_s, tuning):
        watch = replace(watch, started_s=now_s)
    if diagnosis is None:
        return watch
    suspicion = watch.suspicion and replace(watch.suspicion, diagnosis=diagnosis)
    return replace(watch, suspicion=suspicion, by_frames=diagnosis.changed, dumped_s=diagnosis.at_s)


def _has_started(watch: JobWatch, now_s: float, tuning: Tuning) -> bool:
    if watch.output.events and watch.output.settled(tuning):
        return True
    return watch.first_work_s is not None and now_s - watch.first_work_s > tuning.settle_age_s


def phases_of(
    watch: JobWatch, workers: Sequence[WorkerFeatures], now_s: float, tuning: Tuning, *, lone: bool
) -> dict[str, Phase]:
    started = watch.started_s is not None
    return {
        worker.worker: next_phase(
            watch.phases.get(worker.worker, Phase.STARTUP),
            facts_of(worker, now_s, started=started, lone_work=lone, tuning=tuning),
        )
        for worker in workers
    }


def look(
    watch: JobWatch,
    workers: Sequence[WorkerFeatures],
    unseen: tuple[str, ...],
    counts: Counts | None,
    now_s: float,
    tuning: Tuning,
) -> View:
    """The snapshot that the rules judge, from the past and the newest vectors."""
    grown = [w.output.last_checkpoint_s for w in workers if w.output.last_checkpoint_s is not None]
    return View(
        now_s=now_s,
        tuning=tuning,
        ranks=tuple(Seen(worker.worker, worker.host, rank) for worker in workers for rank in worker.ranks),
        watch=watch,
        startup_limit_s=_startup_limit_s(watch, tuning),
        phases=phases_of(watch, workers, now_s, tuning, lone=watch.lone_since_s is not None),
        unseen=unseen,
        last_checkpoint_s=max(grown, default=None),
        step=highest_step(workers),
        reported=any(worker.output.reported for worker in workers),
        dumps_awaited=_dumps_awaited(watch, now_s, tuning),
        by_frames=_still_counting(watch, workers, now_s, tuning),
        counts=counts,
        steps={worker.worker: worker.output.step for worker in workers if worker.output.step is not None},
    )


def _dumps_awaited(watch: JobWatch, now_s: float, tuning: Tuning) -> bool:
    if watch.suspicion is None:
        return True
    asked_s = watch.suspicion.asked_s
    return watch.suspicion.diagnosis is None and asked_s is not None and now_s - asked_s < tuning.diagnose_s


def highest_step(workers: Sequence[WorkerFeatures]) -> float | None:
    """The highest step that any worker has reported; None where none did."""
    return max((worker.output.step for worker in workers if worker.output.step is not None), default=None)


def _startup_limit_s(watch: JobWatch, tuning: Tuning) -> float:
    if watch.earlier_start_s is None:
        return tuning.startup_s
    return min(tuning.startup_s, max(tuning.restart_min_s, tuning.restart_factor * watch.earlier_start_s))


def _still_counting(
    watch: JobWatch, workers: Sequence[WorkerFeatures], now_s: float, tuning: Tuning
) -> frozenset[tuple[str, int]]:
    """Ranks whose changed frames still count as work: until the next dump may be taken, or they go still."""
    dumped_s = watch.dumped_s
    if dumped_s is None or now_s - dumped_s >= dump_pause_s(watch.dumps, tuning):
        return frozenset()
    ranks = ((worker.worker, rank) for worker in workers for rank in worker.ranks)
    return watch.by_frames - {(name, r.rank) for name, r in ranks if r.still and r.still_since_s > dumped_s}


def dump_pause_s(dumps: int, tuning: Tuning) -> float:
    """Seconds between stack dumps after ``dumps`` in a row; so long their changing frames count as work."""
    return wait_s(dumps, tuning.rediagnose_first_s, tuning.rediagnose_last_s)


def looked_again(view: View, watch: JobWatch, workers: Sequence[WorkerFeatures]) -> View:
    """The snapshot with what ``note_stillness`` has learned from it."""
    lone = watch.lone_since_s is not None
    return replace(view, watch=watch, phases=phases_of(watch, workers, view.now_s, view.tuning, lone=lone))


def note_stillness(watch: JobWatch, view: View, gang: Gang) -> JobWatch:
    """Learns how long all ranks stood still, and how long one worked alone, whenever either ends by itself."""
    stood_since_s = still_since_s = None
    if gang.still:
        # Earlier looks saw something move, so the ranks can't all have stood still before that.
        known_s = watch.stood_since_s if watch.stood_since_s is not None else watch.moved_s
        stood_since_s = max(known_s, gang.since_s)
        still_since_s = max(stood_since_s, watch.output.last_s, view.last_checkpoint_s or 0.0)
        watch = replace(watch, still_external=gang.allowed is not Patience.SHORT)
    elif watch.still_since_s is not None and _survived(watch, view):
        lasted_s = watch.seen_s - watch.still_since_s
        # Waiting for each other at the start is survived, and no measure of the pauses to come.
        longest_s = lasted_s if watch.started_s is not None else lasted_s / view.tuning.still_factor
        if watch.still_external:
            watch = replace(watch, external_longest_s=max(watch.external_longest_s, lasted_s))
        else:
            watch = replace(watch, still_longest_s=max(watch.still_longest_s, longest_s))
    if not gang.still:
        watch = replace(watch, moved_s=max(watch.moved_s, gang.moved_s))
    lone_since_s = _lone_since_s(view)
    if lone_since_s is None and watch.lone_since_s is not None:
        lasted_s = watch.seen_s - watch.lone_since_s
        watch = replace(watch, lone_longest_s=max(watch.lone_longest_s, lasted_s))
    return replace(watch, stood_since_s=stood_since_s, still_since_s=still_since_s, lone_since_s=lone_since_s)


def _survived(watch: JobWatch, view: View) -> bool:
    """Whether a stillness ended because something moved, and was no checkpoint's, which has a limit of its own."""
    seen = not view.unseen and all(rank.features.motion is not Motion.UNSEEN for rank in view.ranks)
    return seen and Phase.CHECKPOINT not in watch.phases.values()


def _lone_since_s(view: View) -> float | None:
    """Since when some ranks work, or seem to, while all others stand still and nothing is printed."""
    busy = {seen.key for seen in (*view.working, *view.moving)}
    peers = [seen for seen in view.live if seen.key not in busy]
    if not peers or len(peers) == len(view.live) or not all(seen.features.still for seen in peers):
        return None
    return max([seen.features.still_since_s for seen in peers] + [view.watch.output.last_s])
