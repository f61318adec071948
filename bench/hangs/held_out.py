"""Leaves out a part of the corpora, chooses the constants on the rest, and names the choice for the part left out.

The choice is from a small grid, by one rule fixed here: of the candidates that notice within 240 s at the median, the
one with the smallest share of runs noticed falsely. Every benchmark counts alike, whatever its number of runs, so of
each part some dozens of runs are enough to choose by.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.hang.records.corpus import Run
from holdfast.hang.records.evaluate import Learned, Policy, RunScore, score_run
from holdfast.hang.thresholds import Tuning

SEED = 20
MEDIAN_S = 240.0
STEP_S = 5
"""Times to notice are counted in steps of so many seconds."""
MOST_RUNS = 60
"""So many runs of a part take part in the choice, evenly taken; the part left out is scored whole."""


class Part(NamedTuple):
    """The runs of one benchmark in one corpus, the smallest part that is left out or kept."""

    corpus: str
    benchmark: str


Parts = Mapping[Part, Sequence[Run]]


@dataclass
class Tally:
    """What one candidate made of some runs: how many it noticed falsely, and its times to notice, counted."""

    runs: int = 0
    noticed: int = 0
    waits: Counter[int] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.noticed += other.noticed
        self.waits += other.waits


def grid() -> dict[str, Tuning]:
    """The candidates by name: each constant as shipped, and at one or two other values."""
    axes = {
        "silence_floor_s": (120.0, 180.0),
        "silence_factor": (1.5, 2.0, 3.0),
        "gap_spread": (1.3, 2.0),
        "settle_age_s": (90.0, 240.0),
        "startup_ceiling_s": (1800.0, 3600.0),
    }
    return {
        ", ".join(f"{name.removesuffix('_s')} {value:g}" for name, value in zip(axes, values, strict=True)): Tuning(
            **dict(zip(axes, values, strict=True))  # type: ignore[arg-type]
        )
        for values in itertools.product(*axes.values())
    }


def scores_of(runs: Iterable[Run], policy: Policy) -> list[RunScore]:
    """The policy's score of each run; every policy gets the same stops."""
    uniform = random.Random(SEED).random
    return [score_run(run, policy, uniform) for run in runs]


def _tallies(task: tuple[Parts, Tuning]) -> dict[Part, Tally]:
    parts, tuning = task
    found: dict[Part, Tally] = {}
    for part, runs in parts.items():
        scores = scores_of(runs[:: -(-len(runs) // MOST_RUNS)], Learned(tuning))
        waits = Counter(int(wait_s / STEP_S) for one in scores for wait_s in one.notice_s)
        found[part] = Tally(len(scores), sum(one.notices > 0 for one in scores), waits)
    return found


def tallied(parts: Parts, jobs: int) -> dict[str, dict[Part, Tally]]:
    """Every candidate of the grid on every part, in so many processes."""
    candidates = grid()
    with multiprocessing.Pool(jobs) as pool:
        found = pool.map(_tallies, [(parts, tuning) for tuning in candidates.values()], chunksize=1)
    return dict(zip(candidates, found, strict=True))


def chosen(table: Mapping[str, Mapping[Part, Tally]], kept: Collection[Part]) -> str:
    """The candidate that is best on these parts."""

    def cost(name: str) -> tuple[bool, float, float]:
        share, median_s = alike({part: table[name][part] for part in kept})
        return median_s > MEDIAN_S, round(share, 4), median_s

    return min(table, key=cost)


def alike(tallies: Mapping[Part, Tally]) -> tuple[float, float]:
    """Share of runs noticed falsely and median time to notice, each benchmark counting alike."""
    benchmarks: dict[str, Tally] = {}
    for part, tally in tallies.items():
        benchmarks.setdefault(part.benchmark, Tally()).add(tally)
    share = sum(one.noticed / one.runs for one in benchmarks.values()) / len(benchmarks)
    weights: Counter[int] = Counter()
    for one in benchmarks.values():
        total = one.waits.total()
        for step, count in one.waits.items():
            weights[step] += count / total  # type: ignore[assignment]
    half, reached = len(benchmarks) / 2, 0.0
    for step in sorted(weights):
        reached += weights[step]
        if reached >= half:
            return share, (step + 1.0) * STEP_S
    return share, float("nan")
