"""Figures of stories that were told: ``python -m tests.faults.takeovers.figures FILE`` reads what OUT has kept."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ENDED = ("leader killed", "both killed")
HANDED_OVER = ("leader told to end",)
RANKS = 4
"""Of the two gangs of each story."""


def table(outcomes: list[dict[str, Any]]) -> list[str]:
    """A line for each kind of fault: how long until the first commit; and what became of jobs and ranks."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for kind, times in outcome["first_commits_s"].items():
            seen[kind] += times
    rows = [f"{'first commit after':<42} {'times':>5} {'median':>8} {'p99':>8} {'worst':>8}"]
    rows += [_row(kind, times) for kind, times in sorted(seen.items(), key=lambda row: _at(row[1], 0.5))]
    for name, kinds in (("any crash", ENDED), ("any hand-over", HANDED_OVER), ("any fault", tuple(seen))):
        if times := [each for kind in kinds for each in seen.get(kind, ())]:
            rows.append(_row(name, times))
    sums = {
        key: sum(outcome[key] for outcome in outcomes) for key in ("jobs", "exits", "reads", "events", "uploads")
    }
    again = sum(outcome["launches"] - RANKS for outcome in outcomes)
    problems = [each for outcome in outcomes for each in outcome["problems"]]
    rows.append(", ".join(f"{count} {key}" for key, count in sums.items()))
    rows.append(f"ranks launched again: {again}; problems: {len(problems)}")
    return [*rows, *problems]


def _row(name: str, times: list[float]) -> str:
    figures = (_at(times, 0.5), _at(times, 0.99), max(times))
    return f"{name:<42} {len(times):>5} " + " ".join(f"{each:>7.2f}s" for each in figures)


def _at(times: Iterable[float], share: float) -> float:
    """The smallest time that so large a share of all does not exceed."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


if __name__ == "__main__":
    lines = (line for name in sys.argv[1:] for line in Path(name).read_text().splitlines())
    print(*table([json.loads(line) for line in lines]), sep="\n")
