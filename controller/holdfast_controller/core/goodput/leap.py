"""The ledger when the controller's wall clock leaps: all that is still open leaps along, so no time passes by it.

Each span stays as long as it was and the next one begins where it ends, now by the clock as it was set: what is added
to a day's sums later is that day's by the newer clock. What is settled stays in the day it was booked to.
"""

from __future__ import annotations

from holdfast._base.dataclass import replace
from holdfast_controller.core.model.goodput import JobLedger, Progress, ProgressWatch, Reached, Tape
from holdfast_controller.core.model.hosts.host import Host


def leap_of_ledger(ledger: JobLedger, by: int) -> None:
    """A job's ledger goes on ``by`` ms later, or earlier."""
    _leap(ledger, by, "since", "clock", "started_at", "hang_since", "failed_at", "emptied_at", "not_before")
    for tape in (*ledger.live, *ledger.spares.values(), *ledger.gone):
        _leap_of_tape(tape, by)
    ledger.saved = [_later(saved, by) for saved in ledger.saved]
    if ledger.unsettled is not None:
        ledger.unsettled.progress = _progress(ledger.unsettled.progress, by)


def leap_of_host(host: Host, by: int) -> None:
    """A host: its record, which stays the one that it is booked under, and its quarantined shares."""
    if host.record is not None:
        _leap(host.record, by, "until", "failed_at", "lost_at")
        host.record.leapt += by
    for place, found in host.quarantined.items():
        host.quarantined[place] = replace(found, since=found.since + by)


def leap_of_watch(watch: ProgressWatch, by: int) -> None:
    """The progress of a running generation goes on so much later, or earlier."""
    _leap(watch, by, "began", "moved", "works_since")
    for name in ("since", "newest", "stepless", "doing_since"):
        if at := getattr(watch, name):
            setattr(watch, name, at + by)
    for name in ("first", "last", "stretch_from"):
        if (reached := getattr(watch, name)) is not None:
            setattr(watch, name, _later(reached, by))
    watch.saved = [_later(saved, by) for saved in watch.saved]
    watch.pace = [_later(point, by) for point in watch.pace]
    watch.writing = {index: _later(begun, by) for index, begun in watch.writing.items()}
    watch.apart = [replace(each, start=each.start + by, end=each.end + by) for each in watch.apart]


def _leap_of_tape(tape: Tape, by: int) -> None:
    for span in tape.spans:
        _leap(span, by, "start", "end")


def _progress(progress: Progress, by: int) -> Progress:
    return replace(
        progress,
        since=progress.since + by,
        until=progress.until + by,
        began=None if progress.began is None else progress.began + by,
        moved=None if progress.moved is None else progress.moved + by,
        first=None if progress.first is None else _later(progress.first, by),
        last=None if progress.last is None else _later(progress.last, by),
        saved=tuple(_later(saved, by) for saved in progress.saved),
        apart=tuple(replace(each, start=each.start + by, end=each.end + by) for each in progress.apart),
    )


def _later(reached: Reached, by: int) -> Reached:
    return replace(reached, at=reached.at + by)


def _leap(of: object, by: int, *names: str) -> None:
    for name in names:
        if (at := getattr(of, name)) is not None:
            setattr(of, name, at + by)
