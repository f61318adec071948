"""The goodput ledger for people: a bar, the figures behind it, and the largest losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
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
    "ending, idle": ("wind_down", "pause"),
    "unknown": ("ran", "unseen"),
}
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
    yield ""
    yield f"  {'CATEGORY':<14} {'CAUSE':<20} {'PAYER':<10} {unit + ' HOURS':>12} {'SHARE':>7}"
    for line in found.lines:
        share = f"{100 * line.ms / total:.1f} %" if total else ""
        words = f"{one_line(line.category):<14} {one_line(line.cause):<20} {one_line(line.payer):<10}"
        yield f"  {words} {line.ms / _HOUR_MS:>12.4f} {share:>7}"


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
    return "\n".join([head, *bar(found, width)]) + "\n" + table


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
        word = f"{_BAR[name]} {name} {100 * ms / total:.1f} %"
        if legend[-1] and len(legend[-1]) + 2 + len(word) > (width or 100):
            legend.append("")
        legend[-1] += f"  {word}" if legend[-1] else word
    return [drawn, *legend]


def summary(rows: Iterable[cluster_pb2.GoodputRow], by: str) -> list[tuple[str, ...]]:
    """Rows of the table of all jobs: hours by name and unit, the largest first; weeks in their order."""
    sums: dict[tuple[tuple[str, ...], bool], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        # A start that the job itself does not pay for is part of an interruption.
        cause = "WORK" if row.payer == "job" else row.payer
        name: tuple[str, ...] = (row.name, row.project) if by == "owner" else (row.name,)
        sums[name, row.ranks][group_of(row.category, cause)] += row.ms
    shown = []
    if by == "week":
        ordered = sorted(sums.items(), key=lambda item: (item[0][1], item[0][0]))
    else:
        ordered = sorted(sums.items(), key=lambda item: (item[0][1], -sum(item[1].values())))
    for (name, ranks), held in ordered:
        total = sum(held.values())
        work = held["trained"] + held["not saved yet"]
        known = total - held["unknown"]
        goodput = f"{100 * work / total:.1f} %" if known and work else "-"
        other = held["saving, evaluating"] + held["ending, idle"]
        hours = (held["trained"], held["not saved yet"], held["starting"], held["lost"], other, held["unknown"])
        shown.append(
            (
                *name,
                "ranks" if ranks else "GPUs",
                f"{total / _HOUR_MS:,.2f}",
                goodput,
                *(f"{h / _HOUR_MS:,.2f}" for h in hours),
            )
        )
    return shown
