"""A job that is slower than it was: reported, with the rank it comes from where that is sure.

Theory of operation. Each vector of a worker brings counters of what its ranks' time went to. A look every ten seconds
hands the newest of all workers to ``core.slowness``, which judges by slots of half a minute. Nothing is judged while a
worker is silent. What is learned lives in memory: after a restart of this controller a job's best is learned again.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast._base.health import Health
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast.hang.pipeline.rank_times import RankTimes
from holdfast.hang.thresholds import Tuning
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import Mono
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.slowness.judge import Slow, judge
from holdfast_controller.core.slowness.pace import Look
from holdfast_controller.core.slowness.thresholds import TUNING
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import JobTimer

LOOK_EVERY_S = 10.0
_STALE_S = Tuning().stale_s


def note_pace(step: Step, job: Job) -> None:
    """A worker's vector has come: have the job's pace looked at."""
    key = (JobTimer.SLOWNESS, job.id)
    if key not in step.timers.due:
        step.timers.set(key, step.now.mono_in(LOOK_EVERY_S))


def on_slowness_look(step: Step, job: Job) -> None:
    """Judge the job's pace by the newest vectors of all its workers."""
    if not job.launched or job.stopping or job.launch.primary_done_at is not None:
        return
    runtime = step.cluster.runtime_of(job.id)
    vectors = list(runtime.features.values())
    now = step.now.mono
    if len(vectors) < len(job.gang.members) or any(now - vector.at_s > _STALE_S for vector in vectors):
        return
    watch = runtime.slow
    at_s, reached = newest_step(vectors)
    held = job.held_until is not None and step.now.wall < job.held_until
    apart = held or any(is_apart(vector) for vector in vectors)
    mark = watch.mark
    if (
        not apart
        and mark is not None
        and 0 <= at_s - mark.at_s < TUNING.slot_s
        and watch.generation == job.generation
    ):
        return
    look = Look(at_s, reached, apart, _times(job, runtime.features), _findings(step.cluster, job))
    found = judge(watch, look, job.generation)
    if not found.news:
        return
    if found.slow is not None:
        _tell(step, job, found.slow)
    elif job.slowdown is not None and watch.best_ms:
        step.emit(ev.SlowdownOver(job_id=job.id, at=step.now.wall, generation=job.generation))


def _tell(step: Step, job: Job, slow: Slow) -> None:
    """Report that the job is slow, once, and again when more is known of whom it comes from."""
    before = job.slowdown
    if before is not None:
        named = {each.host for each in slow.named} - {before.host}
        lonely = slow.waited_for is not None and not before.named and slow.waited_for != before.waited_for
        if not named and not lonely:
            return
    step.emit(
        ev.SlowdownNoticed(
            job_id=job.id,
            at=step.now.wall,
            generation=job.generation,
            since=step.now.wall_of(min(Mono(slow.since_s), step.now.mono)),
            best_ms=slow.best_ms,
            recent_ms=slow.recent_ms,
            named=slow.named,
            waited_for=slow.waited_for,
        )
    )


def newest_step(vectors: list[WorkerFeatures]) -> tuple[float, float | None]:
    """When the newest step was reached, and which; without any, the time of the newest vector."""
    reached = [(step, _when(vector)) for vector in vectors if (step := _step(vector.output)) is not None]
    if not reached:
        return max(vector.at_s for vector in vectors), None
    newest = max(step for step, _ in reached)
    return min(at_s for step, at_s in reached if step == newest), newest


def _step(output: OutputFeatures) -> float | None:
    return output.step if output.step is not None else output.bar_step


def _when(vector: WorkerFeatures) -> float:
    output = vector.output
    told = output.step_s if output.step is not None and output.step_s is not None else output.last_progress_s
    return vector.at_s if told is None else min(told, vector.at_s)


def is_apart(vector: WorkerFeatures) -> bool:
    """Whether it does something else than train: a slot with that in it tells nothing of its pace."""
    output = vector.output
    return (
        output.phase in ("save", "evaluate")
        or output.checkpoint_open
        or bool(vector.declared_idle)
        or vector.traced
    )


def _times(job: Job, features: Mapping[int, WorkerFeatures]) -> dict[int, tuple[str, float, RankTimes]]:
    """Counters by rank. A worker of one process may tell of others below it, but not in place of their own worker."""
    found: dict[int, tuple[str, float, RankTimes]] = {}
    for index, vector in features.items():
        own = job.gang.members[index].ranks
        for rank in vector.ranks:
            if rank.times is None or rank.exit_code is not None:
                continue
            if len(own) > 1 or rank.rank == own[0] or rank.rank not in found:
                found[rank.rank] = vector.host, vector.at_s, rank.times
    return found


def _findings(cluster: Cluster, job: Job) -> frozenset[str]:
    """Hosts of the job with a finding about their hardware that is more than a remark."""
    names = {job.places[index].host for index in job.awaited}
    return frozenset(
        name
        for name in names
        if any(
            failed.health is not None and failed.health is not Health.INFORM
            for failed in cluster.hosts[name].failed_checks.values()
        )
    )
