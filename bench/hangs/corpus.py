"""Scores the detector on recorded healthy runs, with log lines as its only signal, beside simpler rules.

``python -m bench.hangs.corpus [CORPUS.jsonl.gz] [--quick] [-o json]`` prints the policies, an ablation table, the
curve of false notices against median notice time, and a cross-validation by benchmark and by submitter.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.hang.pipeline.progress_rate import ProgressRate
from holdfast.hang.records.corpus import Run, read
from holdfast.hang.records.evaluate import Learned, Policy, Score, score
from holdfast.hang.tuning import Tuning

SEED = 20
SAMPLE = Path(__file__).parents[2] / "tests" / "fixtures" / "mlperf-progress-sample.jsonl.gz"


@dataclass(frozen=True)
class Fixed:
    """Notices and, unless it only notices, acts after so long a silence, whatever the job."""

    after_s: float
    acts: bool = True

    @property
    def shortest_s(self) -> float:
        return self.after_s

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        return rate._replace(last_s=at_s)

    def notice_after_s(self, _rhythm: ProgressRate) -> float:
        return self.after_s

    def act_after_s(self, _rhythm: ProgressRate) -> float:
        return self.after_s if self.acts else math.inf


@dataclass(frozen=True)
class Naive:
    """Three times the longest gap since the first, at least a floor."""

    floor_s: float = 120.0

    @property
    def shortest_s(self) -> float:
        return self.floor_s

    def observe(self, rate: ProgressRate, at_s: float) -> ProgressRate:
        gap_s = at_s - rate.last_s
        longest_s = max(rate.longest_s, gap_s) if rate.events else 0.0
        return rate._replace(last_s=at_s, longest_s=longest_s, events=rate.events + 1)

    def notice_after_s(self, rate: ProgressRate) -> float:
        return max(self.floor_s, 3 * rate.longest_s)

    def act_after_s(self, rate: ProgressRate) -> float:
        return self.notice_after_s(rate)


def scored(runs: Sequence[Run], policy: Policy) -> Score:
    """Every policy gets the same stops."""
    return score(runs, policy, random.Random(SEED).random)


HEAD = (
    f"{'policy':44} {'notices':>7} {'runs':>5} {'of runs':>7}  {'p50':>5} {'p90':>5} {'p99':>5}"
    f" | {'kills':>5} {'of runs (95 %)':>17} {'per 24 h (95 %)':>19}  {'p50':>5} {'p90':>5} {'p99':>5}"
)


def row(name: str, found: Score) -> str:
    share, rate, notice, kill = found.kill_share_of_runs, found.kills_per_24h, found.notice_s, found.kill_s
    return (
        f"{name:44} {found.notices:7} {found.runs_with_notice:5} {found.notice_share_of_runs.estimate:7.1%}"
        f"  {notice.p50:5.0f} {notice.p90:5.0f} {notice.p99:5.0f} | {found.kills:5}"
        f" {share.estimate:5.1%} ({share.low:4.1%}–{share.high:4.1%})"
        f" {rate.estimate:6.2f} ({rate.low:4.2f}–{rate.high:5.2f})  {kill.p50:5.0f} {kill.p90:5.0f} {kill.p99:5.0f}"
    )


def policies() -> list[tuple[str, Policy]]:
    return [
        ("learned (ours)", Learned(Tuning())),
        *((f"fixed {after} s", Fixed(after)) for after in (300, 600, 1800)),
        ("3 × longest since the first gap, ≥ 120 s", Naive()),
    ]


def ablations() -> list[tuple[str, Tuning]]:
    """Each ingredient left out or moved, one at a time."""
    base = Tuning()
    never = 1e12
    return [
        ("as shipped", base),
        ("without start-up (settled at once)", replace(base, settle_gap_min_s=0.0, settle_share=0.0)),
        ("start-up ends by three gaps only", replace(base, settle_age_s=never)),
        ("start-up ends by age only", replace(base, settle_gap_min_s=never)),
        ("gaps of any size end start-up", replace(base, settle_share=0.0)),
        ("settle_share 1/2", replace(base, settle_share=1 / 2)),
        ("settle_share 1/5", replace(base, settle_share=1 / 5)),
        ("bursts count as gaps (settle_gap_min 0)", replace(base, settle_gap_min_s=0.0)),
        ("settle_gap_min 2 s", replace(base, settle_gap_min_s=2.0)),
        ("settle_gap_min 10 s", replace(base, settle_gap_min_s=10.0)),
        ("settle_age 120 s", replace(base, settle_age_s=120.0)),
        ("settle_age 150 s", replace(base, settle_age_s=150.0)),
        ("settle_age 600 s", replace(base, settle_age_s=600.0)),
        ("history forgotten (factor 0)", replace(base, silence_factor=0.0)),
        ("silence_factor 1.5", replace(base, silence_factor=1.5)),
        ("silence_factor 3", replace(base, silence_factor=3.0)),
        ("silence_floor 120 s", replace(base, silence_floor_s=120.0)),
        ("silence_floor 240 s", replace(base, silence_floor_s=240.0)),
        ("startup 900 s", replace(base, startup_s=900.0)),
        ("startup_ceiling 1800 s", replace(base, startup_ceiling_s=1800.0)),
        ("ceiling 3600 s", replace(base, ceiling_s=3600.0)),
    ]


def curve(runs: Sequence[Run]) -> list[tuple[float, Score, Score]]:
    """Our policy with its times scaled, each beside the fixed rule of the same median notice time."""
    points = []
    for scale in (0.1, 0.2, 1 / 3, 0.5, 2 / 3, 1.0, 4 / 3, 2.0, 3.0, 5.0):
        base = Tuning()
        tuning = replace(base, silence_floor_s=base.silence_floor_s * scale, startup_s=base.startup_s * scale)
        ours = scored(runs, Learned(tuning))
        points.append((scale, ours, scored(runs, _with_median(runs, ours.notice_s.p50))))
    return points


def _with_median(runs: Sequence[Run], median_s: float) -> Fixed:
    """The fixed rule whose median time to notice comes nearest, never below: the comparison favours it."""
    after_s = median_s
    for _ in range(4):
        after_s += max(0.0, median_s - scored(runs, Fixed(after_s, acts=False)).notice_s.p50)
    return Fixed(after_s, acts=False)


def grid() -> dict[str, Tuning]:
    """What cross-validation chooses from."""
    return {
        f"floor {floor:.0f} s, factor {factor:.0f}, settle_gap {gap:.0f} s": Tuning(
            silence_floor_s=floor, silence_factor=factor, settle_gap_min_s=gap
        )
        for floor in (90.0, 180.0)
        for factor in (2.0, 3.0, 4.0)
        for gap in (2.0, 5.0, 10.0)
    }


def cross_validated(runs: Sequence[Run], key: Callable[[Run], str]) -> tuple[int, Counter[str]]:
    """Runs with a false notice in held-out groups when the constants are chosen on all other groups.

    Chosen are those with the fewest such runs among those that notice within 200 s at the (run-weighted) median of
    the groups. Also returns how often each choice won.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    table = {(name, g): scored(groups[g], Learned(tuning)) for name, tuning in grid().items() for g in groups}
    held_out, won = 0, Counter[str]()
    for left_out in groups:
        costs = {name: _cost([table[name, g] for g in groups if g != left_out]) for name in grid()}
        best = min(costs, key=lambda name: costs[name])
        won[best] += 1
        held_out += table[best, left_out].runs_with_notice
    return held_out, won


def _cost(scores: Sequence[Score]) -> tuple[bool, int]:
    medians = sorted(one.notice_s.p50 for one in scores for _ in range(one.runs))
    return medians[len(medians) // 2] > 200.0, sum(one.runs_with_notice for one in scores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("corpus", type=Path, nargs="?", default=SAMPLE, help="default: the sample of the tests")
    parser.add_argument("--quick", action="store_true", help="the policies only")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    began = time.monotonic()
    runs = list(read(options.corpus))
    if options.output == "json":
        print(json.dumps({name: scored(runs, policy).record() for name, policy in policies()}, indent=1))
        return 0
    ours = scored(runs, Learned(Tuning()))
    print(f"{ours.runs} runs read and scored in {time.monotonic() - began:.1f} s\n")
    print(HEAD)
    for name, policy in policies():
        print(row(name, scored(runs, policy)))
    if options.quick:
        return 0
    print("\nEach ingredient left out or moved\n" + HEAD)
    for name, tuning in ablations():
        print(row(name, scored(runs, Learned(tuning))))
    print("\nFalse notices at equal median notice time (runs with one)")
    print(f"{'scale':>6} {'median':>7} {'ours':>14} {'fixed rule':>16} {'its median':>10}")
    for scale, mine, fixed in curve(runs):
        print(
            f"{scale:6.2f} {mine.notice_s.p50:6.0f}s {mine.notices:6} ({mine.runs_with_notice:4})"
            f" {fixed.notices:8} ({fixed.runs_with_notice:4}) {fixed.notice_s.p50:9.0f}s"
        )
    print("\nEvery benchmark and submitter counting alike (one run of each, the first)")
    alike = list({(run.benchmark, run.submitter): run for run in reversed(runs)}.values())
    print(HEAD)
    for name, policy in policies():
        print(row(name, scored(alike, policy)))
    for what, key in (("benchmark", lambda run: run.benchmark), ("submitter", lambda run: run.submitter)):
        held_out, won = cross_validated(runs, key)
        print(f"\nLeft out one {what} at a time: {held_out} runs of the left-out ones with a false notice")
        for name, times in won.most_common():
            print(f"  chosen {times} times: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
