"""The fault matrix and the negatives in virtual time, beside simpler detectors and with each family left out.

``python -m bench.hangs.matrix [--quick]``. All vectors are scripted: the figures show what the rules do with
signals as described, not what a GPU measures.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence

from bench.hangs.scenarios import FAULTS, fault, negatives
from bench.hangs.world import Result, Scenario, Signals, Trace, World, name_of

from holdfast._base.job_file.choices import HangAction
from holdfast.hang.thresholds import HangSettings

GPUS = ("all", "utilisation", "none")
FAMILIES = {
    "all families": Signals(),
    "without GPU": Signals(gpu="none"),
    "GPU utilisation only": Signals(gpu="utilisation"),
    "without /proc": Signals(process=False),
    "without output": Signals(output=False),
    "without stacks": Signals(stacks=False),
}
Baseline = Callable[[Sequence[Trace]], float | None]


def variants(name: str) -> Iterable[tuple[Scenario, Signals, int]]:
    """A fault in different places, at different times, in jobs that log differently and show different signals."""
    for seed in range(6):
        gpu = GPUS[seed % 3]
        scenario = fault(
            name,
            fault_s=700.0 + 61.7 * seed,
            guilty=(5 + 3 * seed) % 8,
            gpu=gpu != "none",
            busy=gpu == "all" and seed >= 3,
            line_every_s=(10.0, 1.0, 3.0, 30.0, 5.0, 15.0)[seed],
        )
        yield scenario, Signals(gpu=gpu), seed


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def since_fault(scenario: Scenario, at_s: float | None) -> float | None:
    return None if at_s is None or scenario.fault_s is None else at_s - scenario.fault_s


def right(scenario: Scenario, result: Result) -> bool:
    """Whether exactly the guilty rank was named; nobody, where nobody is guilty."""
    return result.suspects == (() if scenario.guilty is None else (name_of(scenario.guilty),))


def fault_table() -> None:
    print(
        f"{'fault':26} {'acted':>6} {'notice p50':>10} {'p99':>5} {'act p50':>8} {'p99':>5}"
        f" {'guilty right':>12}  rules"
    )
    all_notice, all_act, named, total = [], [], 0, 0
    for name in FAULTS:
        notices, acts, rules, good, runs = [], [], set(), 0, 0
        for scenario, signals, seed in variants(name):
            result = World(scenario, seed=seed, signals=signals).run()
            noticed, acted = since_fault(scenario, result.noticed_s), since_fault(scenario, result.acted_s)
            notices += [noticed] if noticed is not None else []
            acts += [acted] if acted is not None else []
            rules.add(result.rule)
            good, runs = good + right(scenario, result), runs + 1
        named, total = named + good, total + runs
        all_notice += notices
        all_act += [] if scenario.at_ceiling else acts
        print(
            f"{name:26} {len(acts):3}/{runs} {percentile(notices, 0.5):10.0f} {percentile(notices, 0.99):5.0f}"
            f" {percentile(acts, 0.5):8.0f} {percentile(acts, 0.99):5.0f} {good:9}/{runs}"
            f"  {' '.join(sorted(rules))}"
        )
    print(
        f"{'all but acts at the ceiling':26} {'':5} {percentile(all_notice, 0.5):10.0f}"
        f" {percentile(all_notice, 0.99):5.0f}"
        f" {percentile(all_act, 0.5):8.0f} {percentile(all_act, 0.99):5.0f} {named:8}/{total}"
    )


def negative_table() -> None:
    print(f"\n{'negative':52} " + " ".join(f"{gpu:>18}" for gpu in GPUS))
    for scenario in negatives():
        cells = []
        for gpu in GPUS:
            result = World(scenario, signals=Signals(gpu=gpu)).run()
            cells.append("ACTED ON" if result.acted_s else "noticed" if result.notices else "left alone")
        print(f"{scenario.name:52} " + " ".join(f"{cell:>18}" for cell in cells))


def family_table() -> None:
    """What is lost when a family of signals is missing."""
    print(
        f"\n{'signals':24} {'acted in 240 s':>14} {'notice p50':>10} {'act p50':>8}"
        f" {'guilty right':>12} {'negatives acted on':>19}"
    )
    for name, signals in FAMILIES.items():
        notices, acts, fast, good = [], [], 0, 0
        for what in FAULTS:
            scenario = fault(what)
            result = World(scenario, signals=signals).run()
            noticed, acted = since_fault(scenario, result.noticed_s), since_fault(scenario, result.acted_s)
            notices.append(math.inf if noticed is None else noticed)
            acts.append(math.inf if acted is None else acted)
            fast += acts[-1] <= 240
            good += right(scenario, result)
        killed = sum(World(s, signals=signals).run().acted_s is not None for s in negatives())
        print(
            f"{name:24} {fast:11}/{len(FAULTS)} {percentile(notices, 0.5):10.0f} {percentile(acts, 0.5):8.0f}"
            f" {good:9}/{len(FAULTS)} {killed:16}/{len(negatives())}"
        )


# -- Simpler detectors -------------------------------------------------------------------------------------------


def fixed(after_s: float) -> Baseline:
    """So long without any line."""
    return lambda trace: next((t.at_s for t in trace if t.at_s - t.last_line_s > after_s), None)


def _lasting(trace: Sequence[Trace], holds: Callable[[Trace], bool], for_s: float) -> float | None:
    since_s: float | None = None
    for look in trace:
        if not holds(look):
            since_s = None
        elif since_s is None:
            since_s = look.at_s
        elif look.at_s - since_s >= for_s:
            return look.at_s
    return None


def flat_utilisation(trace: Sequence[Trace]) -> float | None:
    """No GPU's utilisation has changed by more than two points for 30 minutes."""
    anchor: tuple[float, ...] = ()
    since_s = 0.0
    for look in trace:
        if not anchor or any(abs(a - b) > 2 for a, b in zip(anchor, look.utils, strict=True)):
            anchor, since_s = look.utils, look.at_s
        elif look.at_s - since_s >= 1800:
            return look.at_s
    return None


def idle_alone(trace: Sequence[Trace]) -> float | None:
    """All GPUs idle for 100 s."""
    return _lasting(trace, lambda look: max(look.utils) <= 5, 100)


def spin_alone(trace: Sequence[Trace]) -> float | None:
    """All GPUs busy without memory traffic for 5 min."""
    return _lasting(trace, lambda look: min(look.utils) >= 95 and max(look.memory_utils) <= 5, 300)


BASELINES: dict[str, Baseline] = {
    "fixed 300 s": fixed(300),
    "fixed 600 s": fixed(600),
    "fixed 1800 s": fixed(1800),
    "utilisation variance, 30 min": flat_utilisation,
    "idle signature alone, 100 s": idle_alone,
    "spin signature alone, 5 min": spin_alone,
}


def trace_of(scenario: Scenario) -> Sequence[Trace]:
    """What a simpler detector sees of the whole scenario."""
    return World(scenario, settings=HangSettings(action=HangAction.OFF)).run().trace


def ours(scenario: Scenario) -> float | None:
    return World(scenario).run().acted_s


def baseline_table() -> None:
    faults = [fault(name) for name in FAULTS]
    healthy = negatives()
    fault_traces = [trace_of(scenario) for scenario in faults]
    healthy_traces = [trace_of(scenario) for scenario in healthy]
    print(f"\n{'detector':30} {'faults found':>12} {'act p50':>8} {'p99':>6} {'negatives acted on':>19}")
    for name, baseline in {"ours": None, **BASELINES}.items():
        if baseline is None:
            at = [ours(scenario) for scenario in faults]
            wrong = [ours(scenario) for scenario in healthy]
        else:
            at = [baseline(trace) for trace in fault_traces]
            wrong = [baseline(trace) for trace in healthy_traces]
        times = [found - (s.fault_s or 0) for found, s in zip(at, faults, strict=True) if found is not None]
        early = sum(time_s < 0 for time_s in times)
        found_times = [time_s for time_s in times if time_s >= 0]
        print(
            f"{name:30} {len(found_times):9}/{len(faults)} {percentile(found_times, 0.5):8.0f}"
            f" {percentile(found_times, 0.99):6.0f} {sum(w is not None for w in wrong):16}/{len(healthy)}"
            + (f"  and {early} killed before the fault" if early else "")
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="the fault matrix only")
    options = parser.parse_args()
    fault_table()
    if not options.quick:
        negative_table()
        family_table()
        baseline_table()
    return 0


if __name__ == "__main__":
    sys.exit(main())
