"""The goodput ledger for people: a bar, the figures behind it, and the largest losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast._base.printable import one_line
from holdfast.cli.kit.durations import span

if TYPE_CHECKING:
    from holdfast.v1 import cluster_pb2, job_pb2

LEVELS = {
    "A": "steps and saves are known",
    "B": "steps are known, saves are not: what the next start resumed from counts as saved",
    "C": "no steps are known, only that there was progress",
    "D": "nothing is known of its progress, so none of it is called productive",
}
WIDTH = 40
_WORK = ("train", "train_unsaved")
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


def share_of_work(found: job_pb2.GetGoodputResponse) -> float | None:
    """The goodput: the share of training, kept or not saved yet, in all time. None where no progress is known."""
    total = sum(line.ms for line in found.lines)
    if not total or found.level == "D":
        return None
    return sum(line.ms for line in found.lines if line.category in _WORK) / total


def page(job_id: str, found: job_pb2.GetGoodputResponse) -> Iterator[str]:
    """Yield the lines of a job's ledger."""
    if not found.HasField("since"):
        yield f"{one_line(job_id)} has held no host since there is a ledger."
        return
    unit = "rank" if found.ranks else "GPU"
    total = sum(line.ms for line in found.lines)
    yield f"{one_line(job_id)}  {headline(found)}"
    yield f"  {bar(found)}"
    yield f"  known     level {one_line(found.level)}: {LEVELS.get(found.level, 'of a newer controller')}"
    if not found.complete:
        yield f"  begins    {found.since.ToJsonString()}, with an upgrade of the controller; not earlier"
    yield f"  allocated {total / _HOUR_MS:.3f} {unit} hours, {found.interruptions} interruptions"
    yield ""
    yield f"  {'CATEGORY':<14} {'CAUSE':<20} {'PAYER':<10} {unit + ' HOURS':>12} {'SHARE':>7}"
    for line in found.lines:
        share = f"{100 * line.ms / total:.1f} %" if total else ""
        words = f"{one_line(line.category):<14} {one_line(line.cause):<20} {one_line(line.payer):<10}"
        yield f"  {words} {line.ms / _HOUR_MS:>12.4f} {share:>7}"


def headline(found: job_pb2.GetGoodputResponse) -> str:
    """The goodput in words, and the largest losses."""
    share = share_of_work(found)
    words = "goodput unknown" if share is None else f"goodput {100 * share:.1f} %"
    lost = losses(found)
    return words + (f"; lost most to {', '.join(lost)}" if lost else "")


def losses(found: job_pb2.GetGoodputResponse, most: int = 3) -> list[str]:
    """The largest losses by cause, such as ``HANG 12 min (4.1 %)``."""
    total = sum(line.ms for line in found.lines)
    by_cause: dict[str, int] = defaultdict(int)
    for line in found.lines:
        if group_of(line.category, line.cause) == "lost":
            by_cause[line.cause] += line.ms
    weight = _weight(found)
    ordered = sorted(by_cause.items(), key=lambda item: -item[1])[:most]
    return [f"{one_line(cause)} {span(ms / weight / 1000)} ({100 * ms / total:.1f} %)" for cause, ms in ordered]


def _weight(found: job_pb2.GetGoodputResponse) -> float:
    """GPUs, or ranks, on average: what makes GPU time the time on the clock."""
    elapsed_ms = (found.until.seconds - found.since.seconds) * 1000 + (found.until.nanos - found.since.nanos) / 1e6
    return max(sum(line.ms for line in found.lines) / max(elapsed_ms, 1.0), 1e-9)


def bar(found: job_pb2.GetGoodputResponse) -> str:
    """The groups as a bar with its legend."""
    sums: dict[str, int] = dict.fromkeys(_GROUPS, 0)
    for line in found.lines:
        sums[group_of(line.category, line.cause)] += line.ms
    total = sum(sums.values())
    if not total:
        return ""
    drawn, legend, done = "", [], 0
    for name, ms in sums.items():
        done += ms
        drawn += _BAR[name] * (round(WIDTH * done / total) - len(drawn))
        if ms:
            legend.append(f"{_BAR[name]} {name} {100 * ms / total:.1f} %")
    return f"{drawn}  {'  '.join(legend)}"


def summary(rows: Iterable[cluster_pb2.GoodputRow]) -> list[tuple[str, ...]]:
    """Rows of the table of all jobs: hours by name and unit, the largest first."""
    sums: dict[tuple[str, bool], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        # A start that the job itself does not pay for is part of an interruption.
        cause = "WORK" if row.payer == "job" else row.payer
        sums[row.name, row.ranks][group_of(row.category, cause)] += row.ms
    shown = []
    for (name, ranks), held in sorted(sums.items(), key=lambda item: (item[0][1], -sum(item[1].values()))):
        total = sum(held.values())
        work = held["trained"] + held["not saved yet"]
        known = total - held["unknown"]
        goodput = f"{100 * work / total:.1f} %" if known and work else "-"
        other = held["saving, evaluating"] + held["ending, idle"]
        hours = (held["trained"], held["not saved yet"], held["starting"], held["lost"], other, held["unknown"])
        shown.append(
            (
                name,
                "ranks" if ranks else "GPUs",
                f"{total / _HOUR_MS:,.2f}",
                goodput,
                *(f"{h / _HOUR_MS:,.2f}" for h in hours),
            )
        )
    return shown
