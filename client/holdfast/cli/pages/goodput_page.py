"""The goodput ledger for people: a bar, the figures behind it, and the largest losses."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from holdfast._base.printable import one_line
from holdfast._sdk import json_view
from holdfast.cli.kit.table import Column, render

if TYPE_CHECKING:
    from holdfast.v1 import cluster_pb2, job_pb2

LEVELS = {
    "A": "steps and saves are known",
    "B": "steps are known, saves are not: what the next start resumed from counts as saved",
    "C": "no steps are known, only that there was progress",
    "D": "nothing is known of its progress, so none of it is called productive",
}
WIDTH = 60
MOST_LOSSES = 3
_GROUPS = {
    "trained": ("train",),
    "not saved yet": ("train_unsaved",),
    "saving, evaluating": ("save", "evaluate"),
    "starting": ("prepare", "install", "launch", "warm_up"),
    "lost": ("lost", "stall", "detect", "diagnose", "stop", "back_off", "held", "relaunch"),
    "ending, idle": ("wind_down", "pause", "spare"),
    "unknown": ("ran", "unseen"),
}
_NO_SAVES = "trained, no save known"
"""For "not saved yet" where saves aren't known: there may be some."""
_BAR = dict(zip(_GROUPS, "█▓▒░×·?", strict=True))
_OWN = frozenset({"FIRST_START", "WORK", "FINISHED"})
"""Causes that are no loss."""
_HOUR_MS = 3_600_000


def group_of(category: str, cause: str) -> str:
    """The group that a category is shown in: a start after an interruption is part of the loss."""
    if category in _GROUPS["starting"] and cause not in _OWN:
        return "lost"
    return next((name for name, held in _GROUPS.items() if category in held), "unknown")


def page(job_id: str, found: job_pb2.GetGoodputResponse, width: int | None = None) -> Iterator[str]:
    """Yield the lines of a job's ledger; its bar and the words of it within ``width``."""
    if not found.HasField("since"):
        yield f"{one_line(job_id)} has held no host since there is a ledger."
        return
    unit = "rank" if found.ranks else "GPU"
    total = sum(line.ms for line in found.lines)
    yield f"{one_line(job_id)}  {headline(found)}"
    yield from (f"  {line}" for line in bar(found, width and width - 2))
    yield f"  known     level {one_line(found.level)}: {LEVELS.get(found.level, 'of a newer controller')}"
    if not found.complete:
        yield f"  begins    {found.since.ToJsonString()}, with an upgrade of the controller; not earlier"
    interruptions = "1 interruption" if found.interruptions == 1 else f"{found.interruptions} interruptions"
    yield f"  allocated {total / _HOUR_MS:.3f} {unit} hours, {interruptions}"
    if found.unused_ms:
        yield f"  unused    {found.unused_ms / _HOUR_MS:.3f} of them, on GPUs that its ranks left idle"
    if found.slowed_ms:
        yield f"  slowed    {found.slowed_ms / _HOUR_MS:.3f} of them, as it was slower than at its best"
    yield ""
    yield f"  {'CATEGORY':<14} {'CAUSE':<20} {'PAYER':<10} {unit + ' HOURS':>12} {'SHARE':>7}"
    shown_hours = adding_up([line.ms / _HOUR_MS for line in found.lines], 4)
    shares = adding_up([100 * line.ms / total for line in found.lines] if total else [], 1)
    for line, given, share in zip_longest(found.lines, shown_hours, shares):
        words = f"{one_line(line.category):<14} {one_line(line.cause):<20} {one_line(line.payer):<10}"
        yield f"  {words} {given:>12.4f} {'' if share is None else f'{share:.1f} %':>7}"
    if total:
        yield f"  {'total':<46} {total / _HOUR_MS:>12.4f} {'100.0 %':>7}"


def adding_up(figures: Iterable[float], digits: int) -> list[float]:
    """The figures rounded, each up or down, so that what is shown adds up to their rounded sum.

    Those are rounded up that lack least to it, so no figure is shown as more than a larger one.
    """
    units = 10**digits
    exact = [figure * units for figure in figures]
    shown = [math.floor(figure) for figure in exact]
    short_of = sorted(range(len(exact)), key=lambda at: shown[at] - exact[at])
    for at in short_of[: round(sum(exact)) - sum(shown)]:
        shown[at] += 1
    return [figure / units for figure in shown]


def headline(found: job_pb2.GetGoodputResponse) -> str:
    """The goodput in words."""
    share = json_view.goodput_share(found)
    return "goodput unknown" if share is None else f"goodput {100 * share:.1f} %"


def short(found: job_pb2.GetGoodputResponse, *, width: int | None, colour: bool) -> str:
    """The ledger in a few lines: the goodput, the bar and the three largest losses. Empty before there is any time."""
    total = sum(line.ms for line in found.lines)
    if not total:
        return ""
    unit = "rank" if found.ranks else "GPU"
    head = f"{headline(found)} of {hours(total)} {unit} hours (level {one_line(found.level)})"
    columns = [Column("LOST TO"), Column("PAYER"), Column(f"{unit} HOURS", right=True), Column("SHARE", right=True)]
    rows = [
        (cause, payer, hours(ms), f"{100 * ms / total:.1f} %") for cause, payer, ms in losses(found)[:MOST_LOSSES]
    ]
    table = render(columns, rows, width=width, colour=colour) if rows else ""
    unused = [f"{hours(found.unused_ms)} of them on GPUs that its ranks left idle"] if found.unused_ms else []
    if found.slowed_ms:
        unused.append(f"{hours(found.slowed_ms)} of them lost as it was slower than at its best")
    return "\n".join([head, *unused, *bar(found, width)]) + "\n" + table


def hours(ms: int) -> str:
    """GPU time in hours, with three digits or more."""
    given = ms / _HOUR_MS
    return f"{given:,.0f}" if given >= 1000 else f"{given:.1f}" if given >= 10 else f"{given:.3f}"


def losses(found: job_pb2.GetGoodputResponse) -> list[tuple[str, str, int]]:
    """Cause, payer and time of each loss, the largest first."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for line in found.lines:
        if group_of(line.category, line.cause) == "lost":
            sums[line.cause, line.payer] += line.ms
    return [(cause, payer, ms) for (cause, payer), ms in sorted(sums.items(), key=lambda item: -item[1])]


def bar(found: job_pb2.GetGoodputResponse, width: int | None = None) -> list[str]:
    """The groups as a bar and its legend, in lines of at most ``width``."""
    sums: dict[str, int] = dict.fromkeys(_GROUPS, 0)
    for line in found.lines:
        sums[group_of(line.category, line.cause)] += line.ms
    total = sum(sums.values())
    if not total:
        return []
    drawn, done, size = "", 0, min(WIDTH, width or WIDTH)
    legend = [""]
    for name, ms in sums.items():
        done += ms
        drawn += _BAR[name] * (round(size * done / total) - len(drawn))
        if not ms:
            continue
        said = _NO_SAVES if name == "not saved yet" and found.level in ("B", "C") else name
        word = f"{_BAR[name]} {said} {100 * ms / total:.1f} %"
        if legend[-1] and len(legend[-1]) + 2 + len(word) > (width or 100):
            legend.append("")
        legend[-1] += f"  {word}" if legend[-1] else word
    return [drawn, *legend]


def sums_table(
    rows: Iterable[cluster_pb2.GoodputRow], by: str, width: int | None
) -> tuple[list[Column], list[tuple[str, ...]]]:
    """Columns and rows of the table of all jobs: hours by name and unit, the largest first; weeks in their order.

    The parts of a row add up to what it has allocated, as shown. Below ``WIDE`` columns there are fewer of them, of
    more groups each.
    """
    sums: dict[bool, dict[tuple[str, ...], dict[str, int]]] = {}
    for row in rows:
        # A start that the job itself does not pay for is part of an interruption.
        cause = "WORK" if row.payer == "job" else row.payer
        name: tuple[str, ...] = (row.name, row.project) if by == "owner" else (row.name,)
        held = sums.setdefault(row.ranks, {}).setdefault(name, defaultdict(int))
        held[group_of(row.category, cause)] += row.ms
    wide = width is None or width >= WIDE
    parts = _PARTS if wide else _FEWER_PARTS
    names = ("OWNER", "PROJECT") if by == "owner" else (by.upper(),)
    figured = (Column(title, right=True) for title in ("ALLOCATED", "GOODPUT", *parts))
    columns = [*(Column(name, give=True) for name in names), Column("HOURS OF" if wide else "UNIT"), *figured]
    longest = max(
        (sum(map(sum, (held.values() for held in by_name.values()))) for by_name in sums.values()), default=0
    )
    digits = 2 if longest < 1_000 * _HOUR_MS else 1 if longest < 100_000 * _HOUR_MS else 0
    shown: list[tuple[str, ...]] = []
    for ranks, by_name in sorted(sums.items()):
        ordered = sorted(by_name.items(), key=lambda item: item[0] if by == "week" else -sum(item[1].values()))
        if len(ordered) > 1:
            total = {group: sum(held[group] for held in by_name.values()) for group in _GROUPS}
            ordered.append((("total", *[""] * (len(names) - 1)), defaultdict(int, total)))
        for name, held in ordered:
            figures = adding_up([sum(held[group] for group in part) / _HOUR_MS for part in parts.values()], digits)
            total_ms = sum(held.values())
            cells = [f"{figure:,.{digits}f}" for figure in (total_ms / _HOUR_MS, *figures)]
            shown.append((*name, "ranks" if ranks else "GPUs", cells[0], _share(held, total_ms), *cells[1:]))
    return columns, shown


def _share(held: dict[str, int], total_ms: int) -> str:
    work = held["trained"] + held["not saved yet"]
    return f"{100 * work / total_ms:.1f} %" if work else "-"


WIDE = 110
"""Columns of a terminal that has all columns of the table of sums."""
_PARTS: dict[str, tuple[str, ...]] = {
    "TRAINED": ("trained",),
    "NOT SAVED YET": ("not saved yet",),
    "STARTING": ("starting",),
    "LOST": ("lost",),
    "OTHER": ("saving, evaluating", "ending, idle"),
    "UNKNOWN": ("unknown",),
}
_FEWER_PARTS: dict[str, tuple[str, ...]] = {
    "TRAINED": ("trained", "not saved yet"),
    "LOST": ("lost",),
    "OTHER": ("starting", "saving, evaluating", "ending, idle"),
    "UNKNOWN": ("unknown",),
}
"""Of a narrow terminal: the goodput is the share of ``TRAINED``."""
