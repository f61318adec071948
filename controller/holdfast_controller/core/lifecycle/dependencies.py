"""Jobs that run after others: they learn of an end in the step that decides it, so no crash comes between the two.

A dependency that can't be met any more fails the job, or pauses it where its spec says so. That may be the end of a job
that others wait for in turn: they learn of it in the same step too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from holdfast.errors import InvalidSpec, Violation
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle.attempts import await_hosts, pause
from holdfast_controller.core.lifecycle.stop import end
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.dependencies import Dependency
from holdfast_controller.core.model.exits import JobError
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.step.step import Step

FAILED_PRECONDITION = 9


def tell_dependents(step: Step) -> bool:
    """Tell jobs of the ends in this step that they wait for. Returns whether one of them waits for hosts now."""
    freed = False
    for entry in step.entries:  # it grows: some fail for want of the end that they waited for
        if isinstance(entry.event, ev.JobEnded):
            job_id, state = entry.event.job_id, entry.event.state
            freed |= _tell(step, job_id, state)
            element, array = step.cluster.jobs[job_id].gang.array, step.cluster.arrays.of(step.cluster.jobs[job_id])
            if element is not None and array is not None and array.outcome is not None:
                freed |= _tell(step, element.array, array.outcome)
    return freed


def _tell(step: Step, on: str, state: JobState) -> bool:
    """Tell all who wait for a job, or an array, that it has ended. Returns whether one of them waits for hosts now."""
    freed = False
    for job in sorted(
        map(step.cluster.jobs.__getitem__, step.cluster.dependents.of(on)), key=lambda job: job.number
    ):
        freed |= note_end(step, job, on, state)
    return freed


def outcome_of(cluster: Cluster, name: str) -> JobState | None:
    """The end of a job that has ended, or of an array all of whose elements have; None for others."""
    if (array := cluster.arrays.get(name)) is not None:
        return array.outcome
    job = cluster.jobs[name]
    return job.state if job.terminal else None


def note_end(step: Step, job: Job, on: str, state: JobState) -> bool:
    """Note the end of a job or an array that ``job`` waits for. Returns whether it waits for hosts now."""
    awaited = next(each for each in job.unmet if each.job == on)
    met = awaited.end.met_by(state is JobState.SUCCEEDED)
    step.emit(ev.DependencyEnded(job_id=job.id, at=step.now.wall, on=on, state=state, met=met))
    if job.id in step.cluster.queue:
        await_hosts(step, job)
        return True
    if not met:
        _give_up(step, job)
    return False


def _give_up(step: Step, job: Job) -> None:
    """Fail the job, or pause it. One of which a restore has yet to find out whether it runs is not ended for this."""
    if job.gang.pause_if_unmet or job.unreconciled is not None:
        pause(step, job)
    else:
        end(step, job, JobState.FAILED, JobError(FAILED_PRECONDITION, f"{job.missed}."))


def never_met(cluster: Cluster, gang: Gang, unseen: frozenset[str] = frozenset()) -> InvalidSpec | None:
    """The refusal of a job that would run after one that isn't there, or that has ended otherwise; None without.

    Jobs that its user may not see (``unseen``) aren't there, whatever else is wrong with the submission.
    """
    found = list(_violations(cluster, gang, unseen))
    return InvalidSpec(found) if found else None


def unseen(cluster: Cluster, names: Iterable[str], sees: Callable[[str], bool]) -> frozenset[str]:
    """The jobs and arrays among ``names`` whose projects a user may not see."""
    found = set()
    for name in names:
        array = cluster.arrays.get(name)
        job = cluster.jobs.head(name if array is None else array.first)
        if job is not None and not sees(job.project):
            found.add(name)
    return frozenset(found)


def _violations(cluster: Cluster, gang: Gang, unseen: frozenset[str]) -> Iterator[Violation]:
    for index, each in enumerate(gang.after):
        if each.job in unseen or not _is_there(cluster, each.job):
            fix = "name one that has not been deleted, by its whole id: holdfast ps --all"
            yield Violation(f"{_path(index)}.job", f"there is no job {each.job!r}", fix)
        elif (state := outcome_of(cluster, each.job)) and not each.end.met_by(state is JobState.SUCCEEDED):
            ended = f"{each.job} ended as {state.name}"
            problem = f"{ended}, so a job that waits for it to {each.end.in_words} would never run"
            yield Violation(_path(index), problem, "leave it out, or wait for any end of it: ANY")


def _is_there(cluster: Cluster, name: str) -> bool:
    """Whether there is this job, or this array with all its elements: without one it isn't known how it ended."""
    if (array := cluster.arrays.get(name)) is not None:
        return len(array.jobs) == array.count and not any(_is_deleted(cluster, job) for job in array.jobs.values())
    return not _is_deleted(cluster, name)


def _is_deleted(cluster: Cluster, name: str) -> bool:
    job = cluster.jobs.head(name)
    return job is None or job.deleted


def _path(index: int) -> str:
    return f"jobSpec.scheduling.after[{index}]"


def wait_for_ends(cluster: Cluster, unmet: tuple[Dependency, ...]) -> str:
    """The reason to wait, such as "waits for prep-1 (RUNNING) to succeed"; the first three are named."""
    named = [f"{each.job}{_state(cluster, each.job)} to {each.end.in_words}" for each in unmet[:3]]
    more = f" and {len(unmet) - 3} more" if len(unmet) > 3 else ""
    return f"waits for {', '.join(named)}{more}"


def _state(cluster: Cluster, job_id: str) -> str:
    if (array := cluster.arrays.get(job_id)) is not None:
        return f" ({array.ended} of {array.count} ended)"
    job = cluster.jobs.head(job_id)
    return f" ({job.state.name})" if job is not None else ""
