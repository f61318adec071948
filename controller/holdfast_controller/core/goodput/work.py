"""Work of a generation: what its reported progress makes of its time, and which of it was kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from holdfast_controller.core.goodput.causes import DECLARED_IDLE, FIRST_START, OLDER_SAVE, WORK
from holdfast_controller.core.goodput.progress import fewer, worked
from holdfast_controller.core.goodput.stretches import thinned
from holdfast_controller.core.goodput.tape import recut
from holdfast_controller.core.model.goodput import Category, Interval, JobLedger, Progress, Tape, Unsettled

RAN = frozenset({Category.RAN})
UNSAVED = frozenset({Category.TRAIN_UNSAVED})
KEPT = frozenset({Category.TRAIN})
_CAUSES = {Category.PAUSE: DECLARED_IDLE, Category.LOST: OLDER_SAVE}


def record(ledger: JobLedger, progress: Progress) -> None:
    """Take in the progress of the newest generation; that of the one before is kept or lost by it."""
    ledger.steps |= progress.first is not None
    ledger.saves |= bool(progress.saved)
    ledger.progress |= progress.began is not None
    ledger.stretches = thinned([*ledger.stretches, *progress.stretches])
    known_until = ledger.saved[-1].at if ledger.saved else 0
    new = (saved for saved in progress.saved if known_until < saved.at <= ledger.clock)
    ledger.saved = fewer([*ledger.saved, *new])
    before, began = ledger.unsettled, progress.began
    # A generation that has only waited says nothing of the work before it.
    if before is not None and before.cause and (began is not None or progress.resumed is not None):
        resolve(ledger, progress.resumed if progress.resumed is not None else _resumed_at(before, progress))
    for tape in ledger.live:
        _cut(ledger, tape, progress)
    if began is not None:
        ledger.unsettled = Unsettled(progress)


def _resumed_at(before: Unsettled, progress: Progress) -> float | None:
    """The step that a generation went on from; None where it counts something else than the one before."""
    first, earlier = progress.first, before.progress.first
    if first is None or earlier is None or first.of != earlier.of:
        return None
    return first.step


def _cut(ledger: JobLedger, tape: Tape, progress: Progress) -> None:
    now, (number, begun_by) = ledger.clock, _start_of(ledger)
    start, until, began = min(progress.since, now), min(progress.until, now), progress.began
    for apart in progress.apart:  # before the first step, too
        cause = _CAUSES.get(apart.category, WORK)
        recut(tape, max(apart.start, start), min(apart.end, until), apart.category, cause, number, only=RAN)
    if began is None:
        return
    recut(tape, start, min(began, now), Category.WARM_UP, begun_by, number, only=RAN)
    saved = progress.saved[-1].at if progress.saved else began
    recut(tape, start, min(saved, until), Category.TRAIN, WORK, number, only=RAN)
    recut(tape, start, until, Category.TRAIN_UNSAVED, WORK, number, only=RAN)


def _start_of(ledger: JobLedger) -> tuple[int, str]:
    """The interruption that the running generation was started after, and why it was."""
    if ledger.start_cause:
        return ledger.start_interruption, ledger.start_cause
    return ledger.interruption, ledger.cause or FIRST_START


def end_start(ledger: JobLedger, tapes: Iterable[Tape]) -> None:
    """A generation ends. If the job has reported steps before and this one came to none, all of it was its start."""
    has_begun = ledger.unsettled is not None and not ledger.unsettled.cause
    if has_begun or not ledger.steps or ledger.starting or ledger.started_at is None:
        return
    number, begun_by = _start_of(ledger)
    for tape in tapes:
        recut(tape, ledger.started_at, ledger.clock, Category.WARM_UP, begun_by, number, only=RAN)


def resolve(ledger: JobLedger, step: float | None) -> None:
    """The job goes on from ``step``: earlier work is kept, later work is lost; None: that is not known."""
    unsettled = ledger.unsettled
    if unsettled is None:
        return
    ledger.unsettled = None
    progress, now = unsettled.progress, ledger.clock
    start, until = min(progress.since, now), min(progress.until, now)
    kept_until = None if step is None else reached_at(progress, step)
    for tape in (*ledger.live, *ledger.gone):
        if kept_until is None:
            recut(tape, start, until, Category.RAN, WORK, only=UNSAVED)
            continue
        cut = min(max(kept_until, start), until)
        recut(tape, start, cut, Category.TRAIN, WORK, only=UNSAVED)
        recut(tape, cut, until, Category.LOST, unsettled.cause, only=UNSAVED)
        recut(tape, cut, until, Category.LOST, OLDER_SAVE, only=KEPT)


def resolve_at_end(ledger: JobLedger, *, succeeded: bool, cause: str) -> None:
    """The job ends: its unsaved work is kept by its success, and else lost where its saves were seen."""
    unsettled, now = ledger.unsettled, ledger.clock
    ledger.unsettled = None
    if unsettled is None:
        return
    category, why = Category.RAN, WORK
    if succeeded and not unsettled.cause:
        category = Category.TRAIN
    elif not succeeded and ledger.steps and ledger.saves:
        category, why = Category.LOST, unsettled.cause or cause
    for tape in (*ledger.live, *ledger.gone):
        recut(tape, 0, now, category, why, only=UNSAVED)


def reached_at(progress: Progress, step: float) -> int | None:
    """When a generation had reached a step, between what was reported; None where it reported no steps."""
    if progress.first is None or progress.last is None:
        return None
    if step > progress.last.step:
        return progress.until
    if step < progress.first.step:
        return progress.since
    points = [progress.first, *(saved for saved in progress.saved if saved.step >= 0), progress.last]
    points.sort(key=lambda point: point.at)
    for low, high in pairwise(points):
        if low.step <= step < high.step:
            share = (step - low.step) / (high.step - low.step)
            left = round(share * worked(low.at, high.at, progress.apart))
            return _after(low.at, left, progress.apart)
    return progress.last.at


def _after(at: int, work_ms: int, apart: Iterable[Interval]) -> int:
    """The time after so much work from a time on."""
    for each in apart:
        if each.end > at:
            if each.start - at >= work_ms:
                break
            work_ms -= max(0, each.start - at)
            at = each.end
    return at + work_ms
