"""Judges simulated gangs, and counts. Seeds up to ``TUNED`` were looked at while the constants were chosen."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.stragglers.gangs import Run
from bench.stragglers.scenarios import HEALTHY, NO_STRAGGLER, STRAGGLERS, Made

from holdfast_controller.core.model.slowness import SlowWatch
from holdfast_controller.core.slowness.judge import judge

TUNED = 1_000


@dataclass
class Count:
    """Of one kind of runs."""

    runs: int = 0
    hours: float = 0.0
    slow: int = 0
    right: int = 0
    in_time: int = 0
    wrong: int = 0
    times_s: list[float] | None = None


def judged(run: Run) -> tuple[float | None, list[tuple[float, frozenset[int]]]]:
    """When the run was first called slow, and who was named when."""
    watch, slow_at, named = SlowWatch(), None, []
    for look in run.looks():
        found = judge(watch, look, 1)
        if found.slow is not None:
            slow_at = slow_at or look.at_s
            if found.slow.named:
                named.append((look.at_s, frozenset(each.rank for each in found.slow.named)))
    return slow_at, named


def count(made: Made, seeds: range) -> Count:
    """Runs of one kind."""
    total = Count(times_s=[])
    for seed in seeds:
        run = made(random.Random(seed), seed)
        slow_at, named = judged(run)
        total.runs += 1
        total.hours += run.hours
        total.slow += slow_at is not None
        at_s, guilty = (run.faults[0].at_s, frozenset(run.faults[0].ranks)) if run.faults else (0.0, frozenset())
        expected = guilty if run.faults and run.faults[0].named else frozenset()
        right = [when for when, who in named if who and who <= expected]
        total.wrong += any(not who <= expected for _, who in named)
        if right and not any(not who <= expected for _, who in named):
            total.right += 1
            total.in_time += right[0] - at_s <= 300
            assert total.times_s is not None
            total.times_s.append(right[0] - at_s)
    return total


def table(seeds: range) -> str:
    """All kinds, as a table of Markdown."""
    lines = ["| runs | of | hours | called slow | named right | within 5 min | median s | named wrong |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    sums = {"straggler": Count(times_s=[]), "no straggler": Count(), "healthy": Count()}
    for group, kinds in (("straggler", STRAGGLERS), ("no straggler", NO_STRAGGLER), ("healthy", HEALTHY)):
        for name, made in kinds.items():
            found = count(made, seeds)
            times = sorted(found.times_s or [])
            middle = f"{times[len(times) // 2]:.0f}" if times else ""
            right = f"{found.right} | {found.in_time}" if group == "straggler" else " | "
            lines.append(
                f"| {name} | {found.runs} | {found.hours:.0f} | {found.slow} | {right} | {middle} | {found.wrong} |"
            )
            both = sums[group]
            for field in ("runs", "right", "in_time", "wrong", "hours"):
                setattr(both, field, getattr(both, field) + getattr(found, field))
    in_time, wrong = sums["straggler"].in_time, sum(each.wrong for each in sums.values())
    named = sums["straggler"].right + wrong
    straggled, healthy = sums["straggler"], sums["healthy"]
    precision, recall = 100 * straggled.right / max(named, 1), 100 * in_time / straggled.runs
    lines += [
        "",
        f"Precision {precision:.1f} % ({straggled.right} of {named} runs in which someone was named), "
        f"recall within five minutes {recall:.1f} % ({in_time} of {straggled.runs}); "
        f"{healthy.wrong} of {healthy.runs} healthy runs named someone, in {healthy.hours:.0f} h.",
    ]
    return "\n".join(lines)
