"""Hosts' reports of an unreconciled job, combined: does it match the log, or is it a whole newer gang?"""

from __future__ import annotations

from holdfast._base.job_file.choices import RestartScope
from holdfast._session.reports import ReportedState, WorkerReport
from holdfast_controller.core.model.hosts.host import Place
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.runtime import Started

Reports = dict[int, dict[str, WorkerReport]]
"""Reports by worker index and host."""
Gang = tuple[int, tuple[int, ...], tuple[Place, ...], tuple[Started, ...]]
"""Attempt; and of each worker its generation, its place and its processes."""
_LAUNCHED = frozenset({ReportedState.RUNNING, ReportedState.STOPPING, ReportedState.STUCK, ReportedState.EMPTY})


def as_known(job: Job, reports: Reports) -> bool:
    """Whether every worker is where the log places it, no newer than in the log, and none is elsewhere."""
    indices = job.awaited
    if not indices or not job.places:
        return False
    for index, places in reports.items():
        home = job.places[index].host if index < len(job.places) else ""
        if any(host != home and report.state is not ReportedState.EMPTY for host, report in places.items()):
            return False
    return all(_fits(job, index, reports.get(index, {}).get(job.places[index].host)) for index in indices)


def _fits(job: Job, index: int, report: WorkerReport | None) -> bool:
    if report is None or report.generation > job.generation_of(index):
        return False
    if job.launched or job.stopping or report.generation < job.generation_of(index):
        return True
    # Of a generation that the log has not launched nothing can run, unless it was launched since.
    return report.state not in _LAUNCHED


def whole_gang(job: Job, reports: Reports) -> Gang | None:
    """The gang whose workers were all launched, no older than the log's; None where there is none.

    A generation that the log says is over was not launched again: places that are left of it say nothing newer.
    """
    chosen: list[tuple[str, WorkerReport]] = []
    for member in job.gang.members:
        places = sorted(reports.get(member.index, {}).items(), key=lambda item: (item[1].generation, item[0]))
        if not places or any(report.state is not ReportedState.EMPTY for _, report in places[:-1]):
            return None
        chosen.append(places[-1])
    generations = tuple(report.generation for _, report in chosen)
    alone = job.gang.retries.scope is RestartScope.WORKER and len(chosen) > 1
    over = job.stopping and not job.awaited
    if max(generations) < job.generation + over or (len(set(generations)) > 1 and not alone):
        return None
    if any(report.state not in _LAUNCHED for _, report in chosen):
        return None
    places_found = [_place(job, index, host, report) for index, (host, report) in enumerate(chosen)]
    found = tuple(place for place in places_found if place is not None)
    if len(found) < len(chosen):
        return None
    attempt = max(job.attempt, *(report.attempt for _, report in chosen))
    return attempt, generations, found, tuple(Started.of(report) for _, report in chosen)


def _place(job: Job, index: int, host: str, report: WorkerReport) -> Place | None:
    """The placement that a worker's report shows; None where an older agent does not report its GPUs."""
    if index < len(job.places) and job.places[index].host == host and report.attempt == job.attempt:
        return job.places[index]
    wanted = job.gang.pool_of(job.gang.members[index]).gpus
    if len(report.gpus) != wanted and report.state is not ReportedState.EMPTY:
        return None
    return Place(host, report.gpus)
