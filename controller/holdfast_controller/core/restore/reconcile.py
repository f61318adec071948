"""Reconciliation: after a restore from a backup the hosts know more than the log does.

Theory of operation. The log is older than what the hosts saw. Jobs may have been relaunched, moved, ended or
handed in since the backup, and ends that the lost controller had acknowledged are in no outbox any more. So
every job that is active in the log is *unreconciled*: nothing is ordered about it, it is not placed, and no user
may act on it, until its hosts have reported. No running process is stopped for being unknown.

- A job whose places are as the log has them, or behind it, is confirmed, and goes on.
- A job of which a whole gang is found at a newer generation is taken up as found (``JobFound``). Both happen as
  soon as the last of its places is heard of: a gang that runs whole proves that no newer one was launched.
- The rest is decided when every host of the log has spoken or was vouched for (fenced, removed), and not before
  hosts that joined after the backup have had time to call. A job of which parts are alive is stopped and starts
  again; one that no host knows may have run and ended since, so it is paused, and its owner decides. Either gets
  a generation far beyond any that the lost controller can have given out (``GENERATIONS_LEFT_OUT``), so that
  none is launched twice.
- Work of jobs that the log doesn't know is an *orphan* on its host: it runs on, its GPUs are quarantined for
  others, its ends are recorded, and an admin may have it stopped.

Hosts' reports are kept in memory only: a controller that starts again asks again.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from holdfast._session.reports import ExitReason, ReportedState, WorkerReport
from holdfast.errors import WrongState
from holdfast_controller.core import events as ev
from holdfast_controller.core.lifecycle import drain, lost_hosts
from holdfast_controller.core.lifecycle.attempts import await_hosts, on_left, pause
from holdfast_controller.core.lifecycle.exits import on_exits
from holdfast_controller.core.lifecycle.missing_exits import LOST, close_records, unknown_ends
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import Host, Orphan, place_key
from holdfast_controller.core.model.job import Job, Leaving, Unreconciled
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason
from holdfast_controller.core.restore.reported_gangs import as_known, whole_gang
from holdfast_controller.core.step.actions import Refuse, Reply, StopOrphan
from holdfast_controller.core.step.assignment import holds
from holdfast_controller.core.step.commands import HostConnected, StopOrphansAsked
from holdfast_controller.core.step.lookup import find_host
from holdfast_controller.core.step.step import Step
from holdfast_controller.core.step.timers import ClusterTimer, JobTimer

EVENTS_LEFT_OUT = 1_000_000_000
"""More than any controller writes between two backups, so that no cursor names another event than before."""
EPOCHS_LEFT_OUT = 1_000_000
"""More than any controller begins: hosts that have seen a later one than the backup obey all the same."""
GENERATIONS_LEFT_OUT = 1000
"""More restarts of one job than any backup is behind."""
COUNTED_FROM = 1_767_225_600.0
"""2026 began then, by the wall clock."""


class LeftOut(NamedTuple):
    """How many numbers of each kind a restored log leaves out."""

    events: int
    epochs: int


def left_out(at: Wall) -> LeftOut:
    """Numbers to leave out at a restore: more the later it is, by one event a millisecond and one epoch a second.

    The same log may be restored twice: its backup is taken again, or the first restore's own commits were lost with the
    server that had them. The second one then gives out none of the first one's numbers.
    """
    since_ms = max(0, round((at - COUNTED_FROM) * 1000))
    return LeftOut(EVENTS_LEFT_OUT + since_ms, EPOCHS_LEFT_OUT + since_ms // 1000)


def on_hello(step: Step, hello: HostConnected) -> None:
    """Apply the reports of a host that connects; those of its earlier sessions are void."""
    cluster, host = step.cluster, step.cluster.hosts[hello.host]
    if not cluster.gaps:
        return
    cluster.reported_hosts.add(host.name)
    for job_id, ends in cluster.deferred_exits.items():
        cluster.deferred_exits[job_id] = [end for end in ends if end.host != host.name]
    said = {report.key for report in hello.places}
    for job in _open_jobs(step):
        for index, places in cluster.found.get(job.id, {}).items():
            places.pop(host.name, None)
            key = place_key(job.id, index)
            if (job.id, job.gang.members[index].name) not in said and key in host.allocations:
                step.emit(ev.HostPlaceFreed(host=host.name, at=step.now.wall, place=key))
        _free_unsaid(step, host, job, said)
    for orphan in list(host.orphans.values()):
        if (orphan.job, orphan.worker) not in said:
            _gone(step, host, orphan)
    for report in hello.places:
        _take_in(step, host, report)
    for job_id in dict.fromkeys(report.key.job for report in hello.places):
        _look(step, job_id)
    end_if_all_told(step)


def _free_unsaid(step: Step, host: Host, job: Job, said: Set[tuple[str, str]]) -> None:
    """Free shares of an unreconciled job on this host whose workers the host doesn't report."""
    for member in job.gang.members:
        key = place_key(job.id, member.index)
        if key in host.allocations and (job.id, member.name) not in said:
            step.emit(ev.HostPlaceFreed(host=host.name, at=step.now.wall, place=key))


def on_report(step: Step, host_name: str, report: WorkerReport) -> bool:
    """Apply a later report of a host; False where it concerns no reconciliation."""
    if not step.cluster.gaps:
        return False
    taken = _take_in(step, step.cluster.hosts[host_name], report)
    if taken:
        _look(step, report.key.job)
        end_if_all_told(step)
    return taken


def _take_in(step: Step, host: Host, report: WorkerReport) -> bool:
    cluster, job = step.cluster, step.cluster.jobs.get(report.key.job)
    index = job.gang.index_by_name.get(report.key.worker) if job is not None else None
    if job is None or index is None:
        _on_orphan(step, host, report, None)
        return True
    held = holds(cluster, job, index, host.name)
    if job.unreconciled is Unreconciled.OPEN:
        cluster.found.setdefault(job.id, {}).setdefault(index, {})[host.name] = report
        share = host.allocations.get(place_key(job.id, index))
        if report.state is not ReportedState.EMPTY and (share is None or set(report.gpus) - set(share.gpus)):
            _on_orphan(step, host, report, job)
        return True
    if held or (f"{job.id}/{report.key.worker}" not in host.orphans and report.state is ReportedState.EMPTY):
        return False
    if not held and place_key(job.id, index) in host.allocations:
        return False  # quarantined, as the share of a worker that was taken as gone
    _on_orphan(step, host, report, job)
    return True


# --- Unreconciled jobs --------------------------------------------------------------------------------------------


def _look(step: Step, job_id: str) -> None:
    """Reconcile a job if the reports so far are enough for it."""
    job = step.cluster.jobs.get(job_id)
    if job is None or job.unreconciled is not Unreconciled.OPEN:
        return
    reports = step.cluster.found.get(job_id, {})
    # A share that was freed meanwhile, as of a host that an admin said was off, is the job's again by JobFound alone.
    if as_known(job, reports) and all(
        holds(step.cluster, job, index, job.places[index].host) for index in job.awaited
    ):
        step.emit(
            ev.JobCleared(
                job_id=job.id, at=step.now.wall, reason="its hosts confirm what the restored log says of it"
            )
        )
    else:
        found = whole_gang(job, reports)
        if found is None:
            return
        attempt, generations, places, started = found
        step.emit(
            ev.JobFound(
                job_id=job.id,
                at=step.now.wall,
                attempt=attempt,
                generations=generations,
                places=places,
                started=started,
            )
        )
        left_s = max(job.gang.timeout_s - job.ran_s, 0.0)
        step.timers.set((JobTimer.TIMEOUT, job.id), step.now.mono_in(left_s))
    _leave_hosts(step, job)
    _judge(step, job)
    step.touch(job)


def _leave_hosts(step: Step, job: Job) -> None:
    """Have a job go on without hosts that shut down, or were lost, after they had reported it."""
    for name in dict.fromkeys(job.places[index].host for index in job.awaited):
        if step.cluster.hosts[name].going_down:
            drain.leave_at_shutdown(step, job, name)
        if step.cluster.hosts[name].lost:
            lost_hosts.go_on_without(step, job, name)


def _judge(step: Step, job: Job) -> None:
    """Apply the reports and exits that were deferred while the job was unreconciled."""
    reports = step.cluster.found.pop(job.id, {})
    for index, places in reports.items():
        for name, report in places.items():
            host = step.cluster.hosts.get(name)
            if host is not None and not holds(step.cluster, job, index, name):
                _on_orphan(step, host, report, job)
    for end in step.cluster.deferred_exits.pop(job.id, []):
        if step.cluster.presence_of(end.host).session == end.session:
            on_exits(step, end)


def end_if_all_told(step: Step) -> None:
    """Once every host of the restored log has reported, decide about the jobs that are left, and end."""
    cluster = step.cluster
    open_jobs = _open_jobs(step)
    doubted = [host for host in cluster.hosts.values() if host.unreconciled]
    if (not open_jobs and not doubted) or step.now.mono < cluster.reconcile_until:
        return
    if any(host.name not in cluster.reported_hosts for host in doubted):
        return
    for job in open_jobs:
        _give_up(step, job)
    step.emit(ev.ReconciliationEnded(at=step.now.wall))
    if cluster.schedules:
        step.timers.set((ClusterTimer.SCHEDULES, ""), step.now.mono)
    for name in sorted(cluster.draining):
        drain.set_timers(step, cluster.hosts[name])
    step.capacity_freed = True


def _give_up(step: Step, job: Job) -> None:
    """Decide about a job without a whole gang: place it again if parts of it are alive, else pause it."""
    reports = step.cluster.found.get(job.id, {})
    told = [report for places in reports.values() for report in places.values()]
    alive = any(report.state is not ReportedState.EMPTY for report in told)
    newest = max([job.generation, *(report.generation for report in told)])
    was_paused = job.state is JobState.PAUSED
    reason = _REASONS[alive, was_paused].format(job=job.id)
    step.emit(
        ev.JobUnsure(job_id=job.id, at=step.now.wall, generation=newest + GENERATIONS_LEFT_OUT, reason=reason)
    )
    if alive and job.vacating is None and job.awaited and not was_paused:
        step.emit(
            ev.AttemptEnded(
                job_id=job.id,
                at=step.now.wall,
                leaving=Leaving.RETRY,
                end_reason=EndReason.CONTROLLER_RESTORED,
                failed_at=step.now.wall,
            )
        )
        await_hosts(step, job)
    elif not alive and not was_paused:
        step.emit(ev.PauseRequested(job_id=job.id, at=step.now.wall, by="holdfast"))
        pause(step, job)
    _judge(step, job)
    for member in job.gang.members:
        close_records(step, job, member, ExitReason.LOST_RECORD, LOST)
    for index in job.awaited:
        host = job.places[index].host
        if place_key(job.id, index) not in _allocations(step, host):
            step.emit(ev.WorkerEmptied(job_id=job.id, at=step.now.wall, worker=job.gang.members[index].name))
        else:
            step.touch(job, index)
    on_left(step, job)
    _clear(step, job.id)


_REASONS = {
    (True, False): "after the restore only a part of it was found; it is stopped and starts again",
    (True, True): "after the restore a part of it was found, though it is paused; that is stopped",
    (False, False): "no host knows of it after the restore: it may have run and ended since the backup. Go on with:"
    " holdfast job resume {job}; or end it: holdfast job cancel {job}",
    (False, True): "no host knows of it after the restore; it stays paused",
}


def _allocations(step: Step, host: str) -> set[str]:
    found = step.cluster.hosts.get(host)
    return set(found.allocations) if found is not None else set()


def _open_jobs(step: Step) -> list[Job]:
    return [job for job in step.cluster.jobs.whole.values() if job.unreconciled is Unreconciled.OPEN]


def on_unaccounted(step: Step, job: Job, index: int) -> None:
    """Record a worker's exits as lost where it is gone and no report of them can come: they were lost with the log."""
    member = job.gang.members[index]
    if job.stopping or not job.launched or index in job.launch.deferred or not step.cluster.gaps:
        return
    lost = unknown_ends(job, member, ExitReason.LOST_RECORD, LOST, step.now.wall)
    step.emit_exits(job, member.name, lost)
    if lost:
        step.emit(ev.PauseRequested(job_id=job.id, at=step.now.wall, by="holdfast"))
        pause(step, job)


# --- Orphans ------------------------------------------------------------------------------------------------------


def _on_orphan(step: Step, host: Host, report: WorkerReport, job: Job | None) -> None:
    """Record a worker that the log doesn't place on this host; stop it where a newer generation is known."""
    known = host.orphans.get(f"{report.key.job}/{report.key.worker}")
    if report.state is ReportedState.EMPTY:
        if known is not None:
            _gone(step, host, known)
        if job is None or job.unreconciled is not Unreconciled.OPEN:
            _stop_orphan(step, host, report.key.job, report.key.worker, _beyond(job, report.generation))
        return
    if known is None or (known.generation, known.gpus) != (report.generation, report.gpus):
        step.emit(
            ev.OrphanFound(
                host=host.name,
                at=step.now.wall,
                job=report.key.job,
                worker=report.key.worker,
                generation=report.generation,
                gpus=report.gpus,
            )
        )
    superseded = (
        job is not None and job.unreconciled is not Unreconciled.OPEN and report.generation <= job.generation
    )
    if superseded or report.key.job in host.orphans_to_stop:
        _stop_orphan(step, host, report.key.job, report.key.worker, _beyond(job, report.generation))


def _beyond(job: Job | None, generation: int) -> int:
    return max(generation, job.generation if job is not None else 0)


def _gone(step: Step, host: Host, orphan: Orphan) -> None:
    step.emit(ev.OrphanGone(host=host.name, at=step.now.wall, job=orphan.job, worker=orphan.worker))
    step.capacity_freed = True
    _clear(step, orphan.job)


def _clear(step: Step, job_id: str) -> None:
    """Let a job be placed again once all its orphans are gone."""
    job = step.cluster.jobs.get(job_id)
    if job is None or job.unreconciled is not Unreconciled.CLEARING:
        return
    if not any(orphan.job == job_id for host in step.cluster.hosts.values() for orphan in host.orphans.values()):
        step.emit(
            ev.JobCleared(
                job_id=job_id, at=step.now.wall, reason="nothing is left of what it ran before the restore"
            )
        )
        step.capacity_freed = True


def _stop_orphan(step: Step, host: Host, job_id: str, worker: str, generation: int) -> None:
    session = step.cluster.presence_of(host.name).session
    if session is not None:
        step.do(StopOrphan(host.name, session, job_id, worker, generation))


def on_vouched(step: Step, host: Host) -> None:
    """Take all workers of a host as gone, after an admin vouched that nothing runs there."""
    for job in _open_jobs(step):
        for places in step.cluster.found.get(job.id, {}).values():
            places.pop(host.name, None)
        _free_unsaid(step, host, job, set())
    for orphan in list(host.orphans.values()):
        _gone(step, host, orphan)


def on_stop_orphans(step: Step, asked: StopOrphansAsked) -> None:
    """Stop the orphaned workers of a job on a host. Repeating the command changes nothing."""
    host = find_host(step, asked.token, asked.host)
    if host is None:
        return
    there = [orphan for orphan in host.orphans.values() if orphan.job == asked.job]
    if not there and asked.job not in host.orphans_to_stop:
        problem = f"The host {host.name} runs no orphaned work of {asked.job}."
        step.do(Refuse(asked.token, WrongState(problem, fix=f"See: holdfast host show {host.name}")))
        return
    job = step.cluster.jobs.get(asked.job)
    if job is not None and job.unreconciled is Unreconciled.OPEN:
        problem = f"The job {asked.job} is known; hosts are still to say where it stands."
        step.do(Refuse(asked.token, WrongState(problem, fix="Wait until they have.")))
        return
    if asked.job not in host.orphans_to_stop:
        step.emit(ev.OrphanStopRequested(host=host.name, at=step.now.wall, job=asked.job, by=asked.by))
    for orphan in there:
        _stop_orphan(step, host, orphan.job, orphan.worker, _beyond(job, orphan.generation))
    step.do(Reply(asked.token, host.name))
