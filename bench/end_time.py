"""Coverage of the expected end's interval on recorded trainings, beside plain extrapolation and tqdm's.

``python -m bench.end_time DATA`` reads, in the folder DATA, ``mlperf-training-v*-progress.jsonl.gz`` (gaps between log
lines; a block of lines that comes again and again counts as one step), ``mlperf-node-power.jsonl.gz`` (each evaluation
counts as one) and ``alibaba-mini-batch-time.csv.gz`` (steps). A run's total is its own last count, which is what a
user reports. It prints what the bounds in ``core/goodput/end_time.py`` would be, and coverage and width on each
benchmark, and each year, with bounds that were found without it; then the same with interruptions.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import gzip
import json
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from holdfast.hang.records.corpus import ABSURD_GAP_MS
from holdfast_controller.core.goodput.end_time import EARLIER, LATER, Interruptions, Pace, ms_left, pace_of
from holdfast_controller.core.goodput.stretches import note_stretch
from holdfast_controller.core.model.goodput import ProgressWatch, Reached

SHARES = (0.10, 0.25, 0.50, 0.75, 0.90)
TAIL = 0.075
"""Left out at each end when the bounds are found, so that benchmarks that were left out are covered, too."""
LEAST_BLOCKS = 10
TQDM_SMOOTHING = 0.3


@dataclass(frozen=True, slots=True)
class Run:
    """A run: where from, and when it had reached which step."""

    year: str
    benchmark: str
    points: tuple[Reached, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a run underway: what was known, and how long it did take."""

    run: Run
    share: float
    left: float
    pace: Pace
    interruptions: Interruptions
    plain_ms: float
    tqdm_ms: float
    true_ms: float

    @property
    def error(self) -> float:
        """The error of the estimate, in units of its scale."""
        return math.log(self.true_ms / (self.pace.step_ms * self.left)) / self.pace.scale


def blocks(gaps_ms: Sequence[int]) -> tuple[Reached, ...]:
    """Ends of the blocks of a log: the longest part of it in which the same number of lines lies between long gaps.

    Two numbers are taken: some programs evaluate after every other block. Empty where there are too few.
    """
    gaps = [gap for gap in gaps_ms if gap <= ABSURD_GAP_MS]
    total, longest, held = sum(gaps), [], 0
    for gap in sorted(gaps, reverse=True):
        longest.append(gap)
        held += gap
        if held >= 0.8 * total:
            break
    least, at, ends = statistics.median(longest) / 2, 0, []
    for line, gap in enumerate(gaps):
        at += gap
        if gap >= least:
            ends.append((line, at))
    between = [after[0] - before[0] for before, after in pairwise(ends)]
    usual = {lines for lines, number in Counter(between).most_common(2) if number >= 0.1 * len(between)}
    begin = best = end = 0
    for index, lines in enumerate([*between, -1]):
        if lines not in usual:
            if index - begin > end - best:
                best, end = begin, index
            begin = index + 1
    if end - best < max(0.7 * len(between), LEAST_BLOCKS - 1):
        return ()
    return tuple(Reached(at, float(number)) for number, (_, at) in enumerate(ends[best : end + 1]))


def runs(folder: Path) -> Iterator[Run]:
    """All runs that can be used."""
    for path in sorted(folder.glob("mlperf-training-v*-progress.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                record = json.loads(line)
                points = blocks(record["gaps_ms"]) if record["status"] == "success" else ()
                if points:
                    yield Run(path.name.split("-")[2], record["benchmark"], points)
    seen = set()
    with gzip.open(folder / "mlperf-node-power.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            starts = [round(1000 * at) for at, mark in record["marks_s"] if mark == "eval_start"]
            if record["run"] not in seen and len(starts) >= LEAST_BLOCKS:
                seen.add(record["run"])
                points = tuple(Reached(at, float(number)) for number, at in enumerate(starts))
                yield Run("v" + record["version"], record["benchmark"], points)
    slowest: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    with gzip.open(folder / "alibaba-mini-batch-time.csv.gz", "rt") as rows:
        for row in csv.DictReader(rows):
            job, step = slowest[row["job"]], int(row["iteration"])
            job[step] = max(job[step], float(row["batch_time_norm"]))
    for job in slowest.values():
        times = accumulate(job[step] for step in sorted(job))
        steps = (Reached(round(at), float(step)) for at, step in zip(times, sorted(job), strict=True))
        yield Run("alibaba", "alibaba", tuple(steps))


def looks(run: Run, interrupted: Sequence[tuple[float, float]] = ()) -> Iterator[Look]:
    """A look at each share of the run's steps at which there is an estimate.

    ``interrupted``: (time of the run's work at which it comes, cost), in ms. The cost comes on top of the work.
    """
    began, ended = run.points[0], run.points[-1]
    watch, tqdm_ms, at = ProgressWatch(1), math.nan, 0
    for share in SHARES:
        while at < len(run.points) and run.points[at].step - began.step <= share * (ended.step - began.step) + 1e-9:
            point = run.points[at]
            note_stretch(watch, point)
            if at:
                step_ms = (point.at - run.points[at - 1].at) / (point.step - run.points[at - 1].step)
                tqdm_ms += TQDM_SMOOTHING * (step_ms - tqdm_ms) if at > 1 else 0
                tqdm_ms = step_ms if at == 1 else tqdm_ms
            at += 1
        last = run.points[at - 1]
        left, worked = ended.step - last.step, last.at - began.at
        pace = pace_of(watch.stretches, left) if left > 0 else None
        if pace is None or pace.is_too_uneven:
            continue
        costs = [cost for when, cost in interrupted if when <= worked]
        later = sum(cost for when, cost in interrupted if when > worked)
        known = Interruptions()
        if costs:
            known = Interruptions(len(costs), round(worked + sum(costs)), statistics.mean(costs))
        plain_ms = worked / (last.step - began.step) * left
        yield Look(run, share, left, pace, known, plain_ms, tqdm_ms * left, ended.at - last.at + later)


def interruptions(run: Run, number: float, dice: random.Random) -> list[tuple[float, float]]:
    """About so many crashes of a run, at any time: each costs a start and the work since the last of 20 saves."""
    length, when, found = run.points[-1].at - run.points[0].at, 0.0, []
    while (when := when + dice.expovariate(number / length)) < length:
        found.append((when, 0.02 * length * dice.lognormvariate(0, 0.5) + when % (length / 20)))
    return found


def bounds(found: Sequence[Look]) -> tuple[float, float]:
    """The errors that ``TAIL`` of the looks stay below, and above; each benchmark and share weighs the same."""
    weights = Counter((look.run.benchmark, look.share) for look in found)
    errors = sorted((look.error, 1 / weights[look.run.benchmark, look.share]) for look in found)
    sums = [0.0]
    for _, weight in errors:
        sums.append(sums[-1] + weight)
    at = [bisect.bisect_left(sums, part * sums[-1]) for part in (TAIL, 1 - TAIL)]
    return errors[max(at[0] - 1, 0)][0], errors[min(at[1] - 1, len(errors) - 1)][0]


@dataclass
class Tally:
    """By share and benchmark: whether the truth lay within, and the width in parts of the truth."""

    within: dict[tuple[float, str], list[bool]]
    width: dict[tuple[float, str], list[float]]

    @classmethod
    def empty(cls) -> Tally:
        """Nothing is counted yet."""
        return cls(defaultdict(list), defaultdict(list))

    def take(self, look: Look, earliest: float, latest: float) -> None:
        """One interval for a look."""
        key = look.share, look.run.benchmark
        self.within[key].append(earliest <= look.true_ms <= latest)
        self.width[key].append((latest - earliest) / look.true_ms)

    def row(self) -> str:
        """Mean coverage, and median width, of benchmarks at each share."""
        cells = []
        for share in SHARES:
            keys = [key for key in self.within if key[0] == share]
            covered = statistics.mean(statistics.mean(self.within[key]) for key in keys)
            wide = statistics.median(statistics.median(self.width[key]) for key in keys)
            cells.append(f"{covered:4.0%} {wide:4.0%}")
        return " | ".join(cells)


def left_out(found: Sequence[Look], part: Callable[[Look], str]) -> Tally:
    """Each part of the looks, with bounds that were found on the others."""
    tally = Tally.empty()
    for name in sorted({part(look) for look in found}):
        low, high = bounds([look for look in found if part(look) != name])
        for look in found:
            if part(look) == name:
                estimate = look.pace.step_ms * look.left
                tally.take(look, *(estimate * math.exp(bound * look.pace.scale) for bound in (low, high)))
    return tally


def main() -> None:
    """Print the bounds and the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    all_runs = list(runs(parser.parse_args().data))
    found = [look for run in all_runs for look in looks(run)]
    low, high = bounds(found)
    print(f"{len(all_runs)} runs, {len(found)} looks")
    print(f"bounds found on all: {low:.3f} {high:.3f}; in the code: {EARLIER} {LATER}")
    print(
        "coverage and median width (of the time that was left) at " + ", ".join(f"{share:.0%}" for share in SHARES)
    )
    for name, part in (("benchmark", lambda look: look.run.benchmark), ("year", lambda look: look.run.year)):
        tally = left_out(found, part)
        print(f"{'each ' + name + ' left out':34} {tally.row()}")
        if name == "benchmark":
            worst = {key[1]: statistics.mean(within) for key, within in tally.within.items()}
            for benchmark in sorted(worst):
                cells = (
                    f"{statistics.mean(tally.within[share, benchmark]):4.0%} "
                    f"{statistics.median(tally.width[share, benchmark]):4.0%}"
                    if (share, benchmark) in tally.within
                    else "   –    –"
                    for share in SHARES
                )
                number = len(tally.within[SHARES[-1], benchmark])
                print(f"  {benchmark:20} {number:5} runs   {' | '.join(cells)}")
    for name, guess in (("plain extrapolation", "plain_ms"), ("tqdm's", "tqdm_ms")):
        for spread in (0.05, 0.1):
            tally = Tally.empty()
            for look in found:
                estimate = getattr(look, guess)
                tally.take(look, estimate * (1 - spread), estimate * (1 + spread))
            print(f"{f'{name}, given or taken {spread:.0%}':34} {tally.row()}")
    for number in (1, 4, 16):
        dice, ours, blind = random.Random(number), Tally.empty(), Tally.empty()
        for run in all_runs:
            for look in looks(run, interruptions(run, number, dice)):
                ours.take(look, *ms_left(look.pace, look.left, look.interruptions))
                blind.take(look, *ms_left(look.pace, look.left, Interruptions()))
        print(f"{f'{number} interruptions in a run':34} {ours.row()}")
        print(f"{'  left out of account':34} {blind.row()}")


if __name__ == "__main__":
    main()
