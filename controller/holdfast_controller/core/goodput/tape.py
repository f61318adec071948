"""Operations on tapes: each keeps their total, whatever the times it is given.

A time before a span begins, or after the job's clock, is brought to that bound: a clock that was set back makes empty
spans, never negative ones.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.goodput import Category, JobLedger, Seat, Span, Tape

DAY_MS = 86_400_000


def milliseconds(at: Wall) -> int:
    """A wall-clock time as the ledger counts it."""
    return round(at * 1000)


def advance(ledger: JobLedger, at: Wall) -> None:
    """Set the job's clock on, never back."""
    ledger.clock = max(ledger.clock, milliseconds(at))


def begin(ledger: JobLedger, index: int, seat: Seat, category: Category, cause: str) -> None:
    """A worker's time begins now. Workers that begin together share a tape."""
    at = ledger.clock
    if ledger.live:
        newest = ledger.live[-1]
        span = newest.spans[-1]
        alike = span.category is category and span.cause == cause and span.interruption == ledger.interruption
        if len(newest.spans) == 1 and span.start == at and alike:
            _own(newest)[index] = seat
            newest.weight += seat.weight
            return
    span = Span(at, None, category, cause, ledger.interruption)
    ledger.live.append(Tape({index: seat}, [span], seat.weight))


def end(ledger: JobLedger, index: int) -> Seat | None:
    """A worker's time ends now; the share that it had. None where it has none."""
    tape = split(ledger, index)
    if tape is None:
        return None
    ledger.live = [other for other in ledger.live if other is not tape]
    if stop(tape, ledger.clock):
        ledger.gone.append(tape)
    return tape.members[index]


def find(ledger: JobLedger, index: int) -> Tape | None:
    """The tape on which a worker's time runs; None where it doesn't."""
    return next((tape for tape in ledger.live if index in tape.members), None)


def split(ledger: JobLedger, index: int) -> Tape | None:
    """The tape of one worker alone, split off where it shares one. None where its time doesn't run."""
    tape = find(ledger, index)
    if tape is None or len(tape.members) == 1:
        return tape
    seat = _own(tape).pop(index)
    tape.weight -= seat.weight
    spans = [Span(s.start, s.end, s.category, s.cause, s.interruption) for s in tape.spans]
    alone = Tape({index: seat}, spans, seat.weight)
    ledger.live.append(alone)
    return alone


def switch(tape: Tape, at: int, category: Category, cause: str, interruption: int = 0) -> None:
    """From ``at``, the job's clock, on the tape's time is in another category."""
    span = tape.spans[-1]
    if span.category is category and span.cause == cause and span.interruption == interruption:
        return
    if span.start == at:
        span.category, span.cause, span.interruption = category, cause, interruption
        return
    span.end = at
    tape.spans.append(Span(at, None, category, cause, interruption))


def recut(
    tape: Tape,
    start: int,
    end: int,
    category: Category,
    cause: str,
    interruption: int = 0,
    *,
    only: Container[Category],
) -> None:
    """Rename what lies between two times and is in one of the categories ``only``."""
    spans = tape.spans
    index = len(spans)
    while index > 0:
        index -= 1
        span = spans[index]
        if span.end is not None and span.end <= start:
            break
        low = max(start, span.start)
        high = end if span.end is None else min(end, span.end)
        if span.category not in only or low >= high:
            continue
        parts = [Span(low, high, category, cause, interruption)]
        if low > span.start:
            parts.insert(0, Span(span.start, low, span.category, span.cause, span.interruption))
        if span.end is None or high < span.end:
            parts.append(Span(high, span.end, span.category, span.cause, span.interruption))
        spans[index : index + 1] = parts


def settle(ledger: JobLedger, tape: Tape, final: Callable[[Span], bool]) -> dict[str, int]:
    """Move final spans that have ended from a tape to the job's sums; their time by key, unweighted."""
    moved: dict[str, int] = {}
    left: list[Span] = []
    for span in tape.spans:
        if span.end is None or not final(span):
            left.append(span)
            continue
        add_up(moved, span, span.end)
    tape.spans = left
    for key, ms in moved.items():
        ledger.sums[key] = ledger.sums.get(key, 0) + ms * tape.weight
    return moved


def add_up(sums: dict[str, int], span: Span, end: int) -> None:
    """Add a span's time until ``end``, cut at midnight UTC."""
    low = span.start
    while low < end:
        day = low // DAY_MS
        high = min(end, (day + 1) * DAY_MS)
        key = f"{day}|{span.category.value}|{span.cause}"
        sums[key] = sums.get(key, 0) + high - low
        low = high


def _own(tape: Tape) -> dict[int, Seat]:
    """The tape's members, to be changed."""
    if tape.shared:
        tape.members, tape.shared = dict(tape.members), False
    return tape.members


def stop(tape: Tape, at: int) -> bool:
    """End the tape's last span; whether any time is on it."""
    span = tape.spans[-1]
    span.end = at
    if span.start == at:
        tape.spans.pop()
    return bool(tape.spans)
