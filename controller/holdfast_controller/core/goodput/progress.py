"""Progress of a running generation, gathered from its workers' vectors until the decision that ends it.

What is gathered is bounded, whatever agents report: older intervals are merged, keeping their length, and the
oldest saves are thinned out. Steps that fall are those of an epoch, say: what was read from the output is forgotten
then, and of reported ones nothing is known until they are exceeded. Where the program says that it went on from an
older step, the time since it first had reached that is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast._base.dataclass import replace
from holdfast.hang.pipeline.features import OutputFeatures, WorkerFeatures
from holdfast_controller.core.goodput.pace import note_pace
from holdfast_controller.core.goodput.stretches import note_stretch
from holdfast_controller.core.model.clock import Mono, Now
from holdfast_controller.core.model.goodput import Category, Interval, Progress, ProgressWatch, Reached

MOST_SAVES = 32
MOST_INTERVALS = 64
NEWEST = 8
"""Of them, these stay as they were seen."""
SAVE_FROM_MS = 10_000
"""A checkpoint that is written while no step is reported for longer than this, or two steps, is waited for."""
MOST_MS = 1e15
"""Longer than any job; steps are as large as agents say."""
LOOK_MS = 2_000
"""How often an agent looks; it tells at once what is new, and what isn't every eight seconds."""
LESS = 2
"""A count that falls less than to this part is the same one: an agent that is restarted may have lost the newest."""
_APART = (Category.PAUSE, Category.SAVE, Category.EVALUATE)
"""Where several workers do several of these, the first counts."""


def observe(watch: ProgressWatch, index: int, vector: WorkerFeatures, now: Now) -> bool:
    """Take in a worker's newest vector, on our clock; whether there is news that should outlive the controller."""
    earlier, last = watch.newest, watch.last
    at = watch.newest = max(earlier, _ms(vector.at_s, now))
    news = _note_step(watch, index, vector, at, now)
    news |= _note_saves(watch, index, vector, at, now)
    output = vector.output
    doing = None
    if vector.declared_idle:
        doing = Category.PAUSE
    elif output.phase == "save":
        doing = Category.SAVE
    elif output.phase == "evaluate":
        doing = Category.EVALUATE
    before = _doing(watch)
    watch.doing.pop(index, None)
    if doing is not None:
        watch.doing[index] = doing
    after = _doing(watch)
    if (
        before is after is Category.SAVE
        and last is not None
        and watch.last is not None
        and watch.last.step > last.step
    ):
        # Between two looks that both saw a save there were steps: none waited for it, or it is another save.
        _add(watch, Interval(watch.doing_since, earlier, before))
        watch.doing_since = at
    if before is not after:
        if before is not None:
            ended = _turned_at(watch, last, earlier, at, into=False)
            _add(watch, Interval(watch.doing_since, ended, before))
        watch.doing_since = _turned_at(watch, last, earlier, at, into=True)
    return news or before is not after


def _turned_at(watch: ProgressWatch, before: Reached | None, earlier: int, at: int, *, into: bool) -> int:
    """When training turned ``into`` something else, or back: between two looks, found by the steps beside it.

    Something else begins as a step ends. It ended before the steps that are new, by their mean time until then.
    """
    last = watch.last
    if last is None or last.at <= earlier:
        return (max(earlier, at - LOOK_MS) + at) // 2
    if into or before is None:
        return last.at
    back = _took_ms(last.step - before.step, watch, before)
    return max(last.at - back, earlier)


def recorded(watch: ProgressWatch, since: int, until: int) -> Progress | None:
    """The progress from ``since`` to ``until``; None where there is none to tell of."""
    doing = _doing(watch)
    apart = list(watch.apart)
    if doing is not None and watch.doing_since < until:
        apart.append(Interval(watch.doing_since, until, doing))
    if watch.began is None and not apart:
        return None
    first, last, began = _first(watch, since), watch.last, watch.began
    if unbelieved := _is_unbelieved(watch):
        first = last = None
    if first is not None:
        began = first.at if began is None or watch.first is None else min(first.at, began)
    elif began is not None:
        # Lines without a step: those of a start tell of no work, and what comes after the last is not known.
        if not watch.works and not apart:
            return None
        until = min(until, max(watch.moved or began, *(interval.end for interval in apart), since))
    return Progress(
        since=since,
        until=until,
        began=began,
        moved=watch.moved,
        first=first,
        last=last,
        resumed=watch.resumed,
        saved=tuple(replace(save, step=-1.0) if watch.counts_again else save for save in watch.saved),
        apart=tuple(interval for interval in apart if interval.start < interval.end),
        stretches=() if unbelieved else tuple(watch.stretches),
    )


def _first(watch: ProgressWatch, since: int) -> Reached | None:
    """The first step, which lies between two looks: by the mean time of a step, after the look that saw none."""
    first, earliest = watch.first, max(watch.stepless, since)
    if first is None or earliest >= first.at or (watch.since and not watch.stepless):
        return first
    before = watch.resumed if watch.resumed is not None else 0.0
    at = first.at - _took_ms(max(first.step - before - 1, 0.0), watch)
    if at >= earliest:
        return replace(first, at=at, step=min(before + 1, first.step))
    return replace(first, at=(earliest + first.at) // 2)


def _ms(at_s: float, now: Now) -> int:
    return round(min(now.wall_of(Mono(at_s)), now.wall) * 1000)


def _doing(watch: ProgressWatch) -> Category | None:
    doing = set(watch.doing.values())
    return next((category for category in _APART if category in doing), None)


def _note_step(watch: ProgressWatch, index: int, vector: WorkerFeatures, at: int, now: Now) -> bool:
    output = vector.output
    watch.works |= output.began_work is not False
    if output.began_work and watch.works_since is None:
        watch.works_since = at
    _note_fall(watch, index, output)
    moved = at if output.last_progress_s is None else min(_ms(output.last_progress_s, now), at)
    if output.last_progress_s is not None:
        watch.began = moved if watch.began is None else watch.began
        watch.moved = max(watch.moved or moved, moved)
    _note_return(watch, index, output, at)
    if output.resumed_step is not None:
        watch.resumed = min(output.resumed_step, output.resumed_step if watch.resumed is None else watch.resumed)
    step = output.step if output.step is not None else output.bar_step
    if index in watch.ahead:
        return False
    if step is None:
        if watch.first is None:
            watch.stepless = at
        return False
    when = moved if output.step_s is None or output.step is None else min(_ms(output.step_s, now), at)
    of = None if output.step is not None or output.bar_is_step else output.step_total
    reached = Reached(when if watch.last is None else max(when, watch.last.at), step, of)
    if watch.first is None:
        watch.first = _read_first(output, reached, now)
        watch.last = reached
        note_stretch(watch, watch.first)
        note_stretch(watch, reached)
        # Lines before the first step are no steps. Work may have begun by then where they are counts of epochs.
        known = watch.works_since if output.step is None else None
        earlier = watch.began if watch.counts_again else known
        watch.began = watch.first.at if earlier is None else min(earlier, watch.first.at)
        watch.moved = moved
        return True
    if watch.last is None or step > watch.last.step:
        watch.last = reached
        note_pace(watch, reached)
        note_stretch(watch, reached)
        watch.moved = max(watch.moved or moved, moved)
    return False


def _note_fall(watch: ProgressWatch, index: int, output: OutputFeatures) -> None:
    """Note that steps have fallen: of reported ones nothing is known then; those that are read are counted again."""
    counted, step, begins_again = watch.counted.get(index), output.bar_step, False
    if output.step is not None:
        watch.believed[index] = not output.step_fell
        begins_again = watch.counted.pop(index, None) is not None
    elif step is not None:
        watch.believed[index], watch.counted[index] = True, step
        begins_again = counted is not None and LESS * step < counted
    elif counted is not None:
        watch.believed[index] = False
        if any(watch.believed.values()):  # others tell the steps
            del watch.counted[index]
            begins_again = True
    if begins_again:
        watch.first = watch.last = watch.stretch_from = None
        watch.pace, watch.best_hour_ms, watch.stretches, watch.shortest_ms = [], 0.0, [], 0
        watch.counts_again = True


def _note_return(watch: ProgressWatch, index: int, output: OutputFeatures, at: int) -> None:
    """Note that a worker went on from an older step. Others that have not yet done so have steps that are lost."""
    if output.step is None:
        return
    before, watch.told[index] = watch.told.get(index, output.step), output.step
    if output.step >= before:
        return
    resumed, follows = output.resumed_step, index in watch.ahead
    watch.ahead.discard(index)
    if output.step_fell or follows or resumed is None or watch.last is None or resumed >= watch.last.step:
        return
    watch.ahead = {other for other, step in watch.told.items() if step > resumed and other != index}
    watch.first = first = _first(watch, watch.since) or watch.last
    watch.saved = [saved for saved in watch.saved if saved.step <= resumed]
    again = Reached(at, resumed, watch.last.of)
    if resumed < first.step:
        since, watch.first = first.at, again
    elif watch.saved and watch.saved[-1].step == resumed:
        since = watch.saved[-1].at
    else:
        since = _reached_at(watch, resumed, at)
    for each in [*watch.apart, Interval(at, at, Category.LOST)]:  # between what it did beside its steps
        if since < each.start:
            watch.apart.append(Interval(since, each.start, Category.LOST))
        since = max(since, each.end)
    watch.apart.sort(key=lambda each: each.start)
    while len(watch.apart) > MOST_INTERVALS:
        _merge(watch.apart)
    watch.last = watch.stretch_from = again
    watch.stepless, watch.pace = max(watch.stepless, watch.first.at), []


def _is_unbelieved(watch: ProgressWatch) -> bool:
    """Whether the steps of all workers that reported any have fallen."""
    return bool(watch.believed) and not any(watch.believed.values())


def _read_first(output: OutputFeatures, reached: Reached, now: Now) -> Reached:
    """The first step of lines that were understood later, or the first one known, ``reached``."""
    if output.step is not None or output.first_step is None or output.first_step_s is None:
        return reached
    first = Reached(_ms(output.first_step_s, now), output.first_step, reached.of)
    return first if first.at < reached.at and first.step < reached.step else reached


def _note_saves(watch: ProgressWatch, index: int, vector: WorkerFeatures, at: int, now: Now) -> bool:
    """Note a save that the program calls complete, or a checkpoint file that has grown and is closed."""
    output = vector.output
    if output.saved_step is not None:
        newest = watch.saved[-1].step if watch.saved else None
        if newest is None or output.saved_step > newest:
            _save(watch, Reached(_reached_at(watch, output.saved_step, at), output.saved_step))
            return True
        return False
    opened = watch.writing.get(index)
    if output.checkpoint_open:
        if opened is None:
            watch.writing[index] = Reached(at, watch.last.step if watch.last is not None else -1.0)
        return False
    if opened is None:
        return False
    del watch.writing[index]
    grew = at if output.last_checkpoint_s is None else max(_ms(output.last_checkpoint_s, now), opened.at)
    still_since = max(opened.at, watch.moved or opened.at) if watch.moved is None or watch.moved <= grew else grew
    if grew - still_since > max(SAVE_FROM_MS, 2 * _step_ms(watch)) and not output.phase:
        _add(watch, Interval(still_since, grew, Category.SAVE))
    if not watch.writing:
        _save(watch, Reached(max(opened.at, watch.saved[-1].at if watch.saved else 0), opened.step))
    return True


def _reached_at(watch: ProgressWatch, step: float, at: int) -> int:
    """When a step was reached that may lie some steps back, by the mean time of a step."""
    if watch.last is None or step >= watch.last.step:
        return at
    back = _took_ms(watch.last.step - step, watch)
    return max(watch.last.at - back, watch.saved[-1].at if watch.saved else watch.began or 0)


def _step_ms(watch: ProgressWatch, until: Reached | None = None) -> float:
    """Mean time of a step until the newest, or that one, without what was done between steps."""
    first, last = watch.first, watch.last if until is None else until
    if first is None or last is None or last.step <= first.step:
        return 0.0
    work_ms = float(max(worked(first.at, last.at, watch.apart), 0))
    return min(work_ms / (last.step - first.step), work_ms)  # whatever fractions of steps an agent reports


def _took_ms(steps: float, watch: ProgressWatch, until: Reached | None = None) -> int:
    return round(min(max(steps, 0.0) * _step_ms(watch, until), MOST_MS))


def worked(start: int, end: int, apart: Iterable[Interval]) -> int:
    """The part of a stretch that is in none of the intervals."""
    return end - start - sum(max(0, min(each.end, end) - max(each.start, start)) for each in apart)


def _save(watch: ProgressWatch, saved: Reached) -> None:
    watch.saved[:] = fewer([*watch.saved, saved])


def fewer(saves: Sequence[Reached]) -> list[Reached]:
    """At most ``MOST_SAVES`` of the saves, spread over all their time; the first and the newest are among them."""
    found = list(saves)
    while len(found) > MOST_SAVES:
        del found[min(range(1, len(found) - 1), key=lambda index: found[index + 1].at - found[index - 1].at)]
    return found


def _add(watch: ProgressWatch, interval: Interval) -> None:
    if watch.apart and interval.start < watch.apart[-1].end:
        interval = replace(interval, start=watch.apart[-1].end)
    if interval.start >= interval.end:
        return
    watch.apart.append(interval)
    if len(watch.apart) > MOST_INTERVALS:
        _merge(watch.apart)


def _merge(apart: list[Interval]) -> None:
    """Make one of the two older ones of a category that are nearest to each other: as long as both, near the later."""
    before: dict[Category, int] = {}
    pairs = []
    for index, each in enumerate(apart[:-NEWEST]):
        if each.category in before:
            first = before[each.category]
            pairs.append((each.end - apart[first].start, first, index))
        before[each.category] = index
    _, first, second = min(pairs)
    # What is between them makes room, so that all stay disjoint.
    until, more = apart[second].end, apart[first].end - apart[first].start
    for index in range(second, first, -1):
        each = apart[index]
        end = min(each.end, until)
        until, more = end - (each.end - each.start) - more, 0
        apart[index] = replace(each, start=until, end=end)
    del apart[first]
