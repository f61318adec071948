"""Fold of events into a job's ledger: what each means for the time of its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast._session.reports import ExitReason
from holdfast_controller.core import events as ev
from holdfast_controller.core.goodput import causes
from holdfast_controller.core.goodput.shares import present
from holdfast_controller.core.goodput.tape import advance, end, milliseconds, recut, settle, split, switch
from holdfast_controller.core.goodput.work import end_start, record, resolve, resolve_at_end
from holdfast_controller.core.model.clock import NEVER, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import (
    Category,
    JobLedger,
    Quarantined,
    Statement,
    Tape,
    Usage,
)
from holdfast_controller.core.model.hang import HangOutcome
from holdfast_controller.core.model.hosts.host import place_key
from holdfast_controller.core.model.job import Job, Leaving
from holdfast_controller.core.model.job_state import JobState
from holdfast_controller.core.model.recovery import EndReason

MOST_SPANS = 400
"""Open spans of one tape; beyond, the oldest are settled as what they are."""
RUNNING = frozenset(
    {
        Category.RAN,
        Category.WARM_UP,
        Category.TRAIN,
        Category.TRAIN_UNSAVED,
        Category.SAVE,
        Category.EVALUATE,
        Category.PAUSE,
    }
)
"""Categories of a generation whose ranks run; later knowledge may replace them."""
_ANY = frozenset(Category)
_STOP = frozenset({Category.STOP})
_HANG = frozenset({Category.DETECT, Category.DIAGNOSE})
_READY = frozenset({Category.PREPARE, Category.STOP, Category.BACK_OFF})
_NO_FAILURES = (ExitReason.COMPLETED, ExitReason.STOPPED)


# --- events -------------------------------------------------------------------------------------------------------


def take(cluster: Cluster, job: Job, event: ev.JobEvent) -> None:
    """Apply an event that the job's own fold has applied."""
    if job.ledger is None:
        return
    advance(job.ledger, event.at)
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(cluster, job, job.ledger, event)


def take_exits(job: Job, events: Sequence[ev.RankExited]) -> None:
    """The same for ends of a job's ranks that were recorded at one moment."""
    ledger = job.ledger
    if ledger is None:
        return
    advance(ledger, events[-1].at)
    ledger.emptied_at = ledger.clock
    for event in events:
        exit_ = event.exit
        if ledger.failed_at is None and exit_.reason not in _NO_FAILURES:
            ended = milliseconds(Wall(exit_.end_time)) if exit_.end_time else ledger.clock
            ledger.failed_at, ledger.failure = min(ended, ledger.clock), exit_.reason.name


def take_restore(job: Job, event: ev.ClusterRestored) -> None:
    """The log goes on from a backup: what was between is not known."""
    ledger = job.ledger
    if ledger is None:
        return
    advance(ledger, event.at)
    since = min(milliseconds(event.taken_at), ledger.clock)
    for tape in ledger.live:
        recut(tape, since, ledger.clock, Category.UNSEEN, EndReason.CONTROLLER_RESTORED.value, only=_ANY)
        switch(tape, ledger.clock, Category.UNSEEN, EndReason.CONTROLLER_RESTORED.value)


def _all(ledger: JobLedger, tapes: Iterable[Tape], category: Category, cause: str) -> None:
    for tape in tapes:
        switch(tape, ledger.clock, category, cause, ledger.interruption)


def _on_preparation(_: Cluster, __: Job, ledger: JobLedger, ___: ev.PreparationNoted) -> None:
    for tape in ledger.live:
        if tape.spans[-1].category in _READY:
            switch(tape, ledger.clock, Category.INSTALL, tape.spans[-1].cause, ledger.interruption)


def _on_launched(_: Cluster, __: Job, ledger: JobLedger, ___: ev.GangLaunched) -> None:
    for tape in ledger.live:
        _launch(ledger, tape)
    ledger.not_before = None


def _on_worker_launched(_: Cluster, job: Job, ledger: JobLedger, event: ev.WorkerLaunched) -> None:
    tape = split(ledger, job.gang.index_by_name[event.worker])
    if tape is not None:
        _launch(ledger, tape)
    ledger.not_before = None


def _launch(ledger: JobLedger, tape: Tape) -> None:
    if ledger.not_before is not None and ledger.emptied_at is not None:
        until = min(ledger.not_before, ledger.clock)
        recut(tape, ledger.emptied_at, until, Category.BACK_OFF, ledger.cause, ledger.interruption, only=_STOP)
    category = Category.RELAUNCH if ledger.interruption else Category.LAUNCH
    switch(tape, ledger.clock, category, ledger.cause or causes.FIRST_START, ledger.interruption)


def _on_started(_: Cluster, job: Job, ledger: JobLedger, __: ev.GangStarted) -> None:
    ledger.failed_at, ledger.failure = None, ""
    _note_start(ledger)
    if job.outcome is None and job.vacating is None:
        _all(ledger, ledger.live, Category.RAN, causes.WORK)


def _note_start(ledger: JobLedger) -> None:
    ledger.started_at, ledger.starting, ledger.start_interruption = ledger.clock, False, ledger.interruption
    ledger.start_cause = ledger.cause or causes.FIRST_START


def _on_worker_started(_: Cluster, job: Job, ledger: JobLedger, event: ev.WorkerStarted) -> None:
    tape = split(ledger, job.gang.index_by_name[event.worker])
    if tape is not None and job.outcome is None and job.vacating is None:
        _all(ledger, [tape], Category.RAN, causes.WORK)


def _on_progress(_: Cluster, __: Job, ledger: JobLedger, event: ev.ProgressRecorded) -> None:
    record(ledger, event.progress)


def _on_restart(cluster: Cluster, job: Job, ledger: JobLedger, event: ev.RestartDecided) -> None:
    alone = None if event.worker is None else split(ledger, event.worker)
    tapes = ledger.live if event.worker is None else [alone] if alone is not None else []
    failed_at = _interrupt(ledger, tapes, event, Category.STOP)
    if event.worker is None:
        ledger.starting = ledger.started_at is not None
        _settle(cluster, job, ledger, failed_at)
    elif alone is not None and len(alone.spans) > MOST_SPANS:
        _settle_tape(cluster, job, ledger, alone, failed_at)
    ledger.not_before = None if event.not_before is None else milliseconds(event.not_before)


def _on_attempt_ended(cluster: Cluster, job: Job, ledger: JobLedger, event: ev.AttemptEnded) -> None:
    category = Category.WIND_DOWN if event.leaving is Leaving.PAUSE else Category.STOP
    _settle(cluster, job, ledger, _interrupt(ledger, ledger.live, event, category))
    ledger.not_before, ledger.starting = None, ledger.started_at is not None


def _interrupt(
    ledger: JobLedger, tapes: Iterable[Tape], event: ev.RestartDecided | ev.AttemptEnded, category: Category
) -> int:
    """Begin an interruption; when it began, by what its event knows of the failure."""
    now, cause = ledger.clock, event.end_reason.value
    if isinstance(event, ev.AttemptEnded) or event.worker is None:
        end_start(ledger, tapes)
    ledger.interruption += 1
    ledger.cause = cause
    failed_at = now if event.failed_at == NEVER else _failed_at(ledger, milliseconds(event.failed_at))
    if ledger.unsettled is not None and not ledger.unsettled.cause:
        ledger.unsettled.cause = cause
    diagnosed_at = max(failed_at, now - round(event.diagnose_s * 1000))
    for tape in tapes:
        recut(tape, failed_at, diagnosed_at, Category.DETECT, cause, ledger.interruption, only=RUNNING)
        recut(tape, diagnosed_at, now, Category.DIAGNOSE, cause, ledger.interruption, only=RUNNING)
        switch(tape, now, category, cause, ledger.interruption)
    ledger.emptied_at, ledger.hang_since, ledger.failed_at, ledger.failure = now, None, None, ""
    return failed_at


def _failed_at(ledger: JobLedger, at: int) -> int:
    """When the running generation failed: its host's clock, ``at``, may be wrong, and it has run and moved before."""
    newest = ledger.unsettled
    moved = newest.progress.moved if newest is not None and not newest.cause else None
    return min(max(at, ledger.ran_since or 0, moved or 0), ledger.clock)


def _on_cause_found(_: Cluster, __: Job, ledger: JobLedger, event: ev.CauseFound) -> None:
    before, ledger.cause = ledger.cause, event.end_reason.value
    if ledger.unsettled is not None and ledger.unsettled.cause == before:
        ledger.unsettled.cause = ledger.cause
    for tape in (*ledger.live, *ledger.gone):
        for span in tape.spans:
            if span.interruption == ledger.interruption and span.cause == before:
                span.cause = ledger.cause
    if ledger.start_interruption == ledger.interruption and ledger.start_cause == before:
        ledger.start_cause = ledger.cause


def _on_hang_noticed(_: Cluster, __: Job, ledger: JobLedger, event: ev.HangNoticed) -> None:
    _cut_back(ledger, event.since)
    _all(ledger, ledger.live, Category.DIAGNOSE, EndReason.HANG.value)


def _cut_back(ledger: JobLedger, since: Wall) -> None:
    ledger.hang_since = min(milliseconds(since), ledger.clock)
    for tape in ledger.live:
        recut(tape, ledger.hang_since, ledger.clock, Category.DETECT, EndReason.HANG.value, only=RUNNING)


def _on_hang_diagnosed(_: Cluster, __: Job, ledger: JobLedger, event: ev.HangDiagnosed) -> None:
    if event.since is not None and ledger.hang_since is not None:
        _cut_back(ledger, event.since)


def _on_hang_judged(_: Cluster, __: Job, ledger: JobLedger, event: ev.HangJudged) -> None:
    if ledger.hang_since is None:
        return
    if event.since is not None:
        _cut_back(ledger, event.since)
    if event.outcome in (HangOutcome.WOULD_RESTART, HangOutcome.SUPPRESSED):
        _all(ledger, ledger.live, Category.STALL, EndReason.HANG.value)


def _on_hang_over(_: Cluster, __: Job, ledger: JobLedger, ___: ev.HangOver) -> None:
    since, ledger.hang_since = ledger.hang_since, None
    if since is None:
        return
    for tape in ledger.live:
        recut(tape, since, ledger.clock, Category.STALL, EndReason.HANG.value, only=_HANG)
        if tape.spans[-1].category in (*_HANG, Category.STALL):
            switch(tape, ledger.clock, Category.RAN, causes.WORK, ledger.interruption)


def _on_pause(_: Cluster, __: Job, ledger: JobLedger, ___: ev.PauseRequested) -> None:
    _all(ledger, ledger.live, Category.WIND_DOWN, EndReason.PAUSED.value)


def _on_primary_completed(_: Cluster, __: Job, ledger: JobLedger, ___: ev.PrimaryCompleted) -> None:
    _all(ledger, ledger.live, Category.WIND_DOWN, causes.FINISHED)


def _on_ending(_: Cluster, __: Job, ledger: JobLedger, event: ev.JobEnding) -> None:
    succeeded = event.outcome is JobState.SUCCEEDED
    cause = _cause_of_end(ledger, event.outcome)
    if event.outcome is JobState.FAILED and ledger.failed_at is not None:
        failed_at = _failed_at(ledger, ledger.failed_at)
        for tape in ledger.live:
            recut(tape, failed_at, ledger.clock, Category.DETECT, cause, ledger.interruption, only=RUNNING)
    if event.outcome is not JobState.SUCCEEDED:
        end_start(ledger, ledger.live)
    resolve_at_end(ledger, succeeded=succeeded, cause=cause)
    _all(ledger, ledger.live, Category.WIND_DOWN, cause)


def _cause_of_end(ledger: JobLedger, outcome: JobState) -> str:
    if outcome is JobState.FAILED:
        return EndReason.HANG.value if ledger.hang_since is not None else ledger.failure or causes.FAILED
    ends = {JobState.SUCCEEDED: causes.FINISHED, JobState.CANCELLED: causes.CANCELLED}
    return ends.get(outcome, causes.EXPIRED)


def _on_emptied(_: Cluster, job: Job, ledger: JobLedger, event: ev.WorkerEmptied) -> None:
    tape = split(ledger, job.gang.index_by_name[event.worker])
    if tape is not None:  # its share is kept for the next attempt
        _all(ledger, [tape], Category.HELD, ledger.cause)


def _on_fenced(cluster: Cluster, job: Job, ledger: JobLedger, event: ev.WorkerFenced) -> None:
    if not event.vouched:
        _quarantine(cluster, job, ledger, job.gang.index_by_name[event.worker])


def _quarantine(cluster: Cluster, job: Job, ledger: JobLedger, index: int) -> None:
    """A share that is still held leaves the job's account for its host's."""
    seat = end(ledger, index)
    host = cluster.hosts.get(seat.host) if seat is not None else None
    if seat is not None and host is not None:
        host.quarantined[place_key(job.id, index)] = Quarantined(ledger.clock, seat, not job.gang.gpus)


def _on_ended(cluster: Cluster, job: Job, ledger: JobLedger, _: ev.JobEnded) -> None:
    for tape in list(ledger.live):
        for index in list(tape.members):
            _quarantine(cluster, job, ledger, index)
    _settle(cluster, job, ledger, ledger.clock)
    cluster.bookings.statements.append(Statement(job.id, ledger, ledger.clock, not job.gang.gpus))
    job.ledger = None


def _on_found(_: Cluster, __: Job, ledger: JobLedger, ___: ev.JobFound) -> None:
    _note_start(ledger)
    _all(ledger, ledger.live, Category.RAN, causes.WORK)


def _on_unsure(_: Cluster, __: Job, ledger: JobLedger, ___: ev.JobUnsure) -> None:
    _all(ledger, ledger.live, Category.STOP, EndReason.CONTROLLER_RESTORED.value)


def _on_cleared(_: Cluster, job: Job, ledger: JobLedger, __: ev.JobCleared) -> None:
    _all(ledger, ledger.live, *present(job))


# --- settling -----------------------------------------------------------------------------------------------------


def _settle(cluster: Cluster, job: Job, ledger: JobLedger, until: int) -> None:
    """Settle all that ended before ``until`` and before the work whose fate is open."""
    if ledger.unsettled is not None and any(len(tape.spans) > MOST_SPANS for tape in ledger.live):
        resolve(ledger, None)
    if ledger.unsettled is not None:
        until = min(until, ledger.unsettled.progress.since)
    for tape in (*ledger.gone, *ledger.live):
        _settle_tape(cluster, job, ledger, tape, until)
    ledger.gone = [tape for tape in ledger.gone if tape.spans]


def _settle_tape(cluster: Cluster, job: Job, ledger: JobLedger, tape: Tape, until: int) -> None:
    moved = settle(ledger, tape, lambda span: span.end is not None and span.end <= until)
    if moved and tape.weight:
        tape.shared = True
        usage = Usage(job.gang.project, job.owner, not job.gang.gpus, tape.members, moved, job.id)
        cluster.bookings.usage.append(usage)


_HANDLERS: dict[type[Any], Callable[[Cluster, Job, JobLedger, Any], None]] = {
    ev.PreparationNoted: _on_preparation,
    ev.GangLaunched: _on_launched,
    ev.GangStarted: _on_started,
    ev.WorkerLaunched: _on_worker_launched,
    ev.WorkerStarted: _on_worker_started,
    ev.ProgressRecorded: _on_progress,
    ev.RestartDecided: _on_restart,
    ev.AttemptEnded: _on_attempt_ended,
    ev.CauseFound: _on_cause_found,
    ev.HangNoticed: _on_hang_noticed,
    ev.HangDiagnosed: _on_hang_diagnosed,
    ev.HangJudged: _on_hang_judged,
    ev.HangOver: _on_hang_over,
    ev.PauseRequested: _on_pause,
    ev.PrimaryCompleted: _on_primary_completed,
    ev.JobEnding: _on_ending,
    ev.WorkerEmptied: _on_emptied,
    ev.WorkerFenced: _on_fenced,
    ev.JobEnded: _on_ended,
    ev.JobFound: _on_found,
    ev.JobUnsure: _on_unsure,
    ev.JobCleared: _on_cleared,
}
