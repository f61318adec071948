"""Shares of hosts as the ledger sees them: a worker's time runs while it holds one."""

from __future__ import annotations

from holdfast_controller.core.goodput import causes
from holdfast_controller.core.goodput.tape import add_up, advance, begin, end, find, milliseconds, stop
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.gang import Gang
from holdfast_controller.core.model.goodput import Category, JobLedger, Quarantined, Seat, Span, Tape, Usage
from holdfast_controller.core.model.hosts.host import Allocation, Host, place_key
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason


def on_hold(job: Job, index: int, host: Host, share: Allocation, at: Wall) -> None:
    """A worker holds a share from now on."""
    if job.terminal:
        return
    if job.ledger is None:
        job.ledger = JobLedger(milliseconds(at), milliseconds(at))
    ledger = job.ledger
    advance(ledger, at)
    if job.is_spare(index):
        seat = _seat(job.gang, index, host, share)
        span = Span(ledger.clock, None, Category.SPARE, causes.OWN_SPARE)
        ledger.spares[index] = Tape({index: seat}, [span], seat.weight)
        return
    begin(ledger, index, _seat(job.gang, index, host, share), Category.PREPARE, ledger.cause or causes.FIRST_START)


def on_let_go(cluster: Cluster, job: Job, index: int, host: Host, at: Wall) -> None:
    """A worker's share is released."""
    quarantined = host.quarantined.pop(place_key(job.id, index), None)
    if quarantined is not None:
        _book_quarantine(cluster, quarantined, max(quarantined.since, milliseconds(at)))
    elif job.ledger is not None:
        advance(job.ledger, at)
        spare = job.ledger.spares.pop(index, None)
        if spare is None:
            end(job.ledger, index)
        elif stop(spare, job.ledger.clock):
            job.ledger.gone.append(spare)


def on_upgrade(job: Job, index: int, host: Host, share: Allocation) -> None:
    """A share was held before there was a ledger: its time begins with the job's newest event."""
    if job.terminal:
        quarantined = Quarantined(
            milliseconds(job.updated_at), _seat(job.gang, index, host, share), not job.gang.gpus
        )
        host.quarantined.setdefault(place_key(job.id, index), quarantined)
        return
    if job.ledger is None:
        at = milliseconds(job.updated_at)
        job.ledger = JobLedger(at, at, complete=False)
    if not job.ledger.complete and not job.is_spare(index) and find(job.ledger, index) is None:
        begin(job.ledger, index, _seat(job.gang, index, host, share), *present(job))


def _seat(gang: Gang, index: int, host: Host, share: Allocation) -> Seat:
    if not gang.gpus:
        if index >= len(gang.members):
            return Seat(host.name, "", gang.spare_pool.processes)
        return Seat(host.name, "", gang.members[index].processes)
    held = share.gpus[0] if share.gpus else ""
    model = next((gpu.model for gpu in host.inventory.gpus if gpu.uuid == held), "")
    return Seat(host.name, model, len(share.gpus))


def _book_quarantine(cluster: Cluster, found: Quarantined, until: int) -> None:
    sums: dict[str, int] = {}
    add_up(sums, Span(found.since, until, Category.QUARANTINE, EndReason.LOST_HOST.value), until)
    if sums:
        cluster.bookings.usage.append(Usage("", "", found.ranks, {0: found.seat}, sums))


def present(job: Job) -> tuple[Category, str]:
    """Category and cause of a job's time by its state alone."""
    cause = job.last_end.value if job.last_end is not None else causes.FIRST_START
    if job.outcome is not None:
        return Category.WIND_DOWN, causes.FINISHED if job.outcome is JobState.SUCCEEDED else cause
    if job.stopping:
        return Category.STOP, cause
    if not job.launched:
        return Category.PREPARE, cause
    if len(job.started) < len(job.places):
        return Category.LAUNCH, cause
    return Category.RAN, causes.WORK
