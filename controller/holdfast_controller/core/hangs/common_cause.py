"""Common causes: jobs that hang together are not acted on for a while, then relaunched one at a time.

A switch or a file server that is at fault mostly comes back within minutes, and the jobs move again by themselves;
killing them meanwhile helps no job. But the peers of a collective whose connections broke don't come back, whatever
has become of the switch. So the brake is bounded: when its time is over, one job is relaunched, and the next one
has its turn when that has had time to show whether it helps. Only storage that ranks of several hosts wait for in
the kernel brakes for as long as they do: what waits there can't even be killed.

Only its events are durable: after a restart of the controller a brake's time begins again.
"""

from __future__ import annotations

from holdfast.hang.judge.common_cause import CommonCause
from holdfast.hang.thresholds import Tuning
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hang import SharedCause
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.actions import Note
from holdfast_controller.core.step.step import Step

SWEEP_EVERY_S = 5.0
_TUNING = Tuning()


def why_braked(cluster: Cluster, job: Job, cause: CommonCause | None, now_s: float) -> str:
    """Why this job may not be acted on now, in words; empty when it may. ``cause`` is what its suspicion shows."""
    if cause is not None and cause.mount:
        return cause.sentence
    held = _of(cluster, job.id)
    if held is None:
        return cause.sentence if cause is not None else ""
    turns = [(at_s, other) for other, at_s in held.relaunched.items() if other != job.id]
    if turns:
        at_s, other = max(turns)
        if now_s - at_s < _TUNING.common_cause_turn_s:
            turn = f"{_TUNING.common_cause_turn_s / 60:.0f} min"
            return f"{other}, which hung at the same time, is relaunched first; this job's turn comes {turn} later"
        return ""
    if held.cleared_s is not None and now_s - held.cleared_s < _TUNING.common_cause_settle_s:
        return "a job that hung at the same time moves again, so this one is given a minute to do so too"
    over = now_s - held.since_s >= _TUNING.common_cause_hold_s
    return cause.sentence if cause is not None and not over else ""


def note_suppressed(step: Step, job: Job, cause: CommonCause) -> None:
    """Note that a restart was suppressed for a common cause, and report each cause once, with its first job."""
    causes = step.cluster.shared_causes
    shared = set(cause.jobs) | {job.id}
    for known in causes:
        if known.mount == cause.mount and not shared.isdisjoint(known.jobs):
            known.jobs |= dict.fromkeys(sorted(shared))
            return
    made = SharedCause(step.now.mono, cause.mount, dict.fromkeys(sorted(shared)), swept_s=step.now.mono)
    causes.append(made)
    _tell(step, made, cause.sentence, cause.hosts or _common_hosts(step.cluster, made))


def note_relaunched(step: Step, job: Job) -> None:
    """Note that a job of a common cause was relaunched."""
    held = _of(step.cluster, job.id)
    if held is not None:
        held.relaunched[job.id] = step.now.mono


def note_hang(step: Step, job: Job) -> None:
    """Note a new hang: if its job was relaunched lately because of a common cause, that has not helped."""
    held = _of(step.cluster, job.id)
    at_s = held.relaunched.get(job.id) if held is not None else None
    if held is None or at_s is None or held.told_again:
        return
    held.told_again = True
    others = " and ".join(name for name in held.jobs if name != job.id) or "others"
    after = f"{(step.now.mono - at_s) / 60:.0f} min after it was relaunched"
    words = f"{job.id} hangs again {after}: what it shares with {others} is likely still at fault"
    _tell(step, held, words, _common_hosts(step.cluster, held))


def forget_passed(cluster: Cluster, job: Job, now_s: float) -> None:
    """Jobs leave a cause that they are no longer suspect of, those that were relaunched after some time.

    Asked at every look at a job, so the others of its cause, which may have ended, are looked at now and then only.
    """
    causes = cluster.shared_causes
    for cause in causes:
        names = [job.id] if job.id in cause.jobs else []
        if now_s - cause.swept_s >= SWEEP_EVERY_S:
            cause.swept_s, names = now_s, list(cause.jobs)
        for name in names:
            _leave(cluster, cause, name, now_s)
    if not all(cause.jobs for cause in causes):
        cluster.shared_causes = [cause for cause in causes if cause.jobs]


def _leave(cluster: Cluster, cause: SharedCause, name: str, now_s: float) -> None:
    at_s = cause.relaunched.get(name)
    goes_on = cluster.jobs[name].outcome is None
    fresh = at_s is not None and now_s - at_s < _TUNING.common_cause_again_s
    if name in cluster.suspects or (fresh and goes_on):
        return
    del cause.jobs[name]
    if at_s is None and goes_on:
        cause.cleared_s = now_s


def _of(cluster: Cluster, job_id: str) -> SharedCause | None:
    """The common cause that the job is part of, other than a mount; None if it is part of none."""
    return next((cause for cause in cluster.shared_causes if job_id in cause.jobs and not cause.mount), None)


def _common_hosts(cluster: Cluster, cause: SharedCause) -> tuple[str, ...]:
    """Hosts on which all of the jobs have workers."""
    places = [{place.host for place in cluster.jobs[name].places} for name in cause.jobs]
    return tuple(sorted(set.intersection(*places)))


def _tell(step: Step, cause: SharedCause, words: str, hosts: tuple[str, ...]) -> None:
    jobs = tuple(cause.jobs)
    step.emit(ev.CommonCauseNoticed(at=step.now.wall, sentence=words, jobs=jobs, mount=cause.mount, hosts=hosts))
    fields = (("message", words), ("jobs", ", ".join(jobs)), ("mount", cause.mount), ("hosts", ", ".join(hosts)))
    step.do(Note("hang.common_cause", fields))
