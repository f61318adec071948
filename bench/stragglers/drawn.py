"""Gangs of real processes whose shape and fault are drawn: ``python -m bench.stragglers drawn [GANGS [FIRST]]``.

Each gang has a seed: its batch, how long its device takes, which rank is at fault, what is done to it and how much
longer a step is meant to take by that, 18 to 30 %; the table says what came of it. No constant is set by them; half of
them have no straggler. Otherwise as ``real``.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from pathlib import Path

from bench.stragglers.real import CGROUP, RANKS, Case, Outcome, compress_time, play

GUILTY_KINDS = ("stop", "slowed")
OTHER_KINDS = ("more on its device", "one rank's loader", "storage of one", "lengths", "evaluations", "checkpoints")
IN_TIME_S = 300.0
HEAD = (
    "| seed | device s | batch | fault | a step takes longer | called slow after s | named, after s | load average |\n"
    + "|---" * 8
    + "|"
)


def drawn(seed: int) -> Case:
    """The gang of a seed."""
    rng = random.Random(seed)
    guilty, device_s, batch = rng.randrange(RANKS), rng.uniform(0.08, 0.3), rng.choice((32, 64, 128, 192))
    longer = rng.uniform(0.18, 0.3)
    extra_s = longer * (device_s + 0.07)
    shape = (("DEVICE_S", f"{device_s:.3f}"), ("BATCH", str(batch)), ("EXTRA_S", f"{extra_s:.3f}"))
    if seed % 2:
        return Case(OTHER_KINDS[seed // 2 % len(OTHER_KINDS)], guilty=guilty, shape=shape)
    kind = GUILTY_KINDS[seed // 2 % len(GUILTY_KINDS)]
    # What is lost while stopped is caught up in part: others wait for the device meanwhile, and so does it.
    amount = longer / (0.9 + longer) if kind == "stop" else longer
    return Case(kind, kind, amount, frozenset({guilty}), guilty=guilty, shape=shape)


def row(seed: int, case: Case, outcome: Outcome) -> str:
    """A line of the table."""
    shape = dict(case.shape)
    longer = "" if outcome.took_longer is None else f"{100 * outcome.took_longer:.0f} %"
    slow = "never" if outcome.slow_s is None else f"{outcome.slow_s:.0f}"
    who = ", ".join(f"{sorted(ranks)} after {at_s:.0f}" for ranks, at_s in outcome.named.items()) or "no one"
    fault = f"{case.name} ({case.guilty})"
    load = f"{os.getloadavg()[0]:.1f}"
    return f"| {seed} | {shape['DEVICE_S']} | {shape['BATCH']} | {fault} | {longer} | {slow} | {who} | {load} |"


def main(gangs: int = 12, first: int = 0) -> None:
    """Play them one after the other, and say how many were named, rightly and wrongly."""
    compress_time()
    print(HEAD, flush=True)
    stragglers = right = in_time = wrong = 0
    for seed in range(first, first + gangs):
        case = drawn(seed)
        if case.outside == "slowed" and not os.access(CGROUP / "cgroup.procs", os.W_OK):
            continue
        with tempfile.TemporaryDirectory(prefix="straggler-") as folder:
            outcome = asyncio.run(play(case, Path(folder), None))
        print(row(seed, case, outcome), flush=True)
        stragglers += bool(case.named)
        at_s = [at_s for ranks, at_s in outcome.named.items() if ranks == case.named]
        right += bool(at_s)
        in_time += any(each <= IN_TIME_S for each in at_s)
        wrong += any(ranks != case.named for ranks in outcome.named)
    print(
        f"\nof {stragglers} stragglers {right} named, {in_time} within 5 min; {wrong} of {gangs} gangs named another"
    )
