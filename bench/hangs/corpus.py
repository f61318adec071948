"""Scores the detector on recorded healthy runs, with log lines as its only signal, beside simpler rules.

``python -m bench.hangs.corpus [CORPUS.jsonl.gz ...] [--quick] [--jobs 2] [-o json]`` prints the policies on all runs,
on each corpus and on each benchmark; with several corpora also what the detector makes of each corpus and each
benchmark when its constants are chosen without it; and an ablation table. ``-o json`` prints the policies on all runs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.hangs.corpus_rules import Fixed, Naive, Release01
from bench.hangs.held_out import Part, Parts, alike, chosen, grid, scores_of, tallied

from holdfast.hang.records.corpus import Run, read
from holdfast.hang.records.evaluate import Learned, Policy, RunScore, Score, pooled
from holdfast.hang.thresholds import Tuning

SAMPLE = Path(__file__).parents[2] / "tests" / "fixtures" / "mlperf-progress-sample.jsonl.gz"

HEAD = (
    f"{'':44} {'runs':>5}  {'noticed (95 %)':>19}  {'p50':>5} {'p90':>5} {'p99':>5}"
    f" | {'killed (95 %)':>19} {'per 24 h (95 %)':>19}  {'p50':>5} {'p90':>5} {'p99':>5}"
)


def row(name: str, found: Score) -> str:
    noticed, killed, rate = found.notice_share_of_runs, found.kill_share_of_runs, found.kills_per_24h
    notice, kill = found.notice_s, found.kill_s
    return (
        f"{name:44} {found.runs:5}  {noticed.estimate:6.1%} ({noticed.low:4.1%}–{noticed.high:5.1%})"
        f"  {notice.p50:5.0f} {notice.p90:5.0f} {notice.p99:5.0f}"
        f" | {killed.estimate:6.1%} ({killed.low:4.1%}–{killed.high:5.1%})"
        f" {rate.estimate:6.2f} ({rate.low:4.2f}–{rate.high:5.2f})  {kill.p50:5.0f} {kill.p90:5.0f} {kill.p99:5.0f}"
    )


def scored(runs: Sequence[Run], policy: Policy) -> Score:
    return pooled(scores_of(runs, policy))


def policies() -> list[tuple[str, Policy]]:
    return [
        ("learned (ours)", Learned(Tuning())),
        ("release 0.1", Release01()),
        *((f"fixed {after} s", Fixed(after)) for after in (300, 600, 1800)),
        ("3 × longest since the first gap, ≥ 120 s", Naive()),
    ]


def ablations() -> list[tuple[str, Tuning]]:
    """Each ingredient left out or moved, one at a time."""
    base = Tuning()
    never = 1e12
    return [
        ("as shipped", base),
        ("no stretches but the first", replace(base, stretch_gap_min_s=never)),
        ("without start-up (settled at once)", replace(base, settle_age_s=0.0, settle_share=0.0)),
        ("cadence known by age only", replace(base, settle_span_s=never)),
        ("cadence known by gaps of one size only", replace(base, settle_age_s=never)),
        *((f"gap_spread {value}", replace(base, gap_spread=value)) for value in (1.15, 1.5, 2.0)),
        *((f"stretch_gap_min {value:.0f} s", replace(base, stretch_gap_min_s=value)) for value in (15.0, 60.0)),
        *((f"settle_span {value:.0f} s", replace(base, settle_span_s=value)) for value in (0.0, 60.0)),
        *((f"settle_gap_min {value:.0f} s", replace(base, settle_gap_min_s=value)) for value in (2.0, 10.0)),
        *((f"settle_age {value:.0f} s", replace(base, settle_age_s=value)) for value in (60.0, 240.0)),
        *((f"settle_share {value}", replace(base, settle_share=value)) for value in (0.0, 0.5, 1.0)),
        *((f"silence_factor {value}", replace(base, silence_factor=value)) for value in (1.5, 3.0)),
        *((f"silence_floor {value:.0f} s", replace(base, silence_floor_s=value)) for value in (120.0, 240.0)),
        *((f"startup_ceiling {value:.0f} s", replace(base, startup_ceiling_s=value)) for value in (1800.0, 2700.0)),
        *((f"ceiling {value:.0f} s", replace(base, ceiling_s=value)) for value in (900.0, 3600.0)),
        *((f"ceiling_factor {value:.0f}", replace(base, ceiling_factor=value)) for value in (2.0, 5.0)),
    ]


def divided(corpora: dict[str, list[Run]]) -> Parts:
    parts: dict[Part, list[Run]] = {}
    for corpus, runs in corpora.items():
        for run in runs:
            parts.setdefault(Part(corpus, run.benchmark), []).append(run)
    return parts


def show_held_out(parts: Parts, jobs: int) -> None:
    candidates, table = grid(), tallied(parts, jobs)
    shipped = next(name for name, tuning in candidates.items() if tuning == Tuning())
    print("\nEvery benchmark counting alike")
    for without in ("", *sorted({part.benchmark for part in parts})):
        share, median_s = alike({part: one for part, one in table[shipped].items() if part.benchmark != without})
        print(
            f"  {f'without {without}' if without else 'all':42} {share:.1%} of runs noticed, p50 {median_s:.0f} s"
        )
    print("Left out, and scored with the constants that are chosen on the rest")
    for what, of in (("corpus", 0), ("benchmark", 1)):
        print(f"\n{what:44}{HEAD[44:]}")
        choices: dict[str, list[str]] = {}
        scores: list[RunScore] = []
        for left_out in sorted({part[of] for part in parts}):
            name = chosen(table, [part for part in parts if part[of] != left_out])
            found = scores_of(_runs(parts, of, left_out), Learned(candidates[name]))
            scores += found
            choices.setdefault(name, []).append(left_out)
            print(row(left_out, pooled(found)))
        print(row("together", pooled(scores)))
        for name, groups in choices.items():
            print(f"  chosen without {', '.join(groups)}: {name}")


def _runs(parts: Parts, of: int, group: str) -> list[Run]:
    return [run for part, runs in parts.items() if part[of] == group for run in runs]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("corpus", type=Path, nargs="*", default=[SAMPLE], help="default: the sample of the tests")
    parser.add_argument("--quick", action="store_true", help="the policies on all runs only")
    parser.add_argument("--jobs", type=int, default=2, help="processes that score the grid")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    began = time.monotonic()
    corpora = {_name(path): list(read(path)) for path in options.corpus}
    runs = [run for some in corpora.values() for run in some]
    if options.output == "json":
        print(json.dumps({name: scored(runs, policy).record() for name, policy in policies()}, indent=1))
        return 0
    ours = scored(runs, Learned(Tuning()))
    print(f"{ours.runs} runs, {ours.hours:.0f} h, read and scored in {time.monotonic() - began:.1f} s\n")
    print(HEAD)
    for name, policy in policies():
        print(row(name, scored(runs, policy)))
    if options.quick:
        return 0
    parts = divided(corpora)
    for place, of in (("corpus", 0), ("benchmark", 1)):
        for group in sorted({part[of] for part in parts}):
            print(f"\n{place} {group}\n{HEAD}")
            for name, policy in policies()[:-1]:
                print(row(name, scored(_runs(parts, of, group), policy)))
    if len(corpora) > 1:
        show_held_out(parts, options.jobs)
    print("\nEach ingredient left out or moved\n" + HEAD)
    for name, tuning in ablations():
        print(row(name, scored(runs, Learned(tuning))))
    return 0


def _name(path: Path) -> str:
    """What a corpus is called: the version in its file's name, else that name."""
    version = re.search(r"v\d+\.\d+", path.name)
    return version[0] if version else path.name.split(".")[0]


if __name__ == "__main__":
    sys.exit(main())
