"""The kinds of runs: gangs with a straggler, gangs that are slow without one, and healthy ones."""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.stragglers.gangs import Fault, Gang, Run

Made = Callable[[random.Random, int], Run]


def _gang(rng: random.Random, *, gpu: bool = False) -> Gang:
    per_host = rng.choice([1, 2, 4, 8])
    hosts = rng.choice([2, 3, 4, 8])
    return Gang(
        ranks=min(per_host * hosts, 32),
        per_host=per_host,
        step_s=rng.choice([0.2, 0.5, 1.0, 3.0]),
        noise=rng.choice([0.01, 0.03, 0.08]),
        uneven=rng.choice([0.0, 0.02, 0.05]),
        comm=rng.choice([0.05, 0.15, 0.3]),
        no_core=rng.choice([0.0, 0.01, 0.05]),
        gpu=gpu,
        reports=rng.random() < 0.5,
        wander=rng.choice([0.0, 0.02]),
    )


def _slow(
    kind: str, by: float, *, named: bool, gpu: bool = False, host: bool = False, everyone: bool = False
) -> Made:
    def made(rng: random.Random, seed: int) -> Run:
        gang = _gang(rng, gpu=gpu)
        at_s = rng.uniform(900, 1800)
        first = rng.randrange(gang.ranks)
        ranks: tuple[int, ...] = (first,)
        if host:
            start = first // gang.per_host * gang.per_host
            ranks = tuple(range(start, min(start + gang.per_host, gang.ranks)))
        if everyone:
            ranks = tuple(range(gang.ranks))
        # The step takes longer by that much of it, not only the rank's part.
        return Run(gang, (Fault(kind, at_s, by * (1 + gang.comm), ranks, named),), seed)

    return made


def _healthy(**changes: float) -> Made:
    def made(rng: random.Random, seed: int) -> Run:
        gang = _gang(rng, gpu=rng.random() < 0.5)
        return Run(Gang(**{**vars(gang), **changes}), (), seed, hours=4.0)

    return made


STRAGGLERS: dict[str, Made] = {
    **{f"no core, {pct} %": _slow("no core", pct / 100, named=True) for pct in (20, 30, 60)},
    **{f"no core, whole host, {pct} %": _slow("no core", pct / 100, named=True, host=True) for pct in (20, 40)},
    **{f"stopped, {pct} %": _slow("stopped", pct / 100, named=True) for pct in (20, 30, 60)},
    **{f"clock, {pct} %": _slow("clock", pct / 100, named=True, gpu=True) for pct in (20, 30, 60)},
    **{
        f"clock, whole host, {pct} %": _slow("clock", pct / 100, named=True, gpu=True, host=True)
        for pct in (20, 40)
    },
}
NO_STRAGGLER: dict[str, Made] = {
    **{f"uneven data, {pct} %": _slow("more work", pct / 100, named=False) for pct in (20, 40, 100)},
    **{f"uneven data on GPUs, {pct} %": _slow("more work", pct / 100, named=False, gpu=True) for pct in (20, 60)},
    "one rank's loader": _slow("loader", 0.3, named=False),
    "one rank sleeps": _slow("sleep", 0.3, named=False),
    "one rank's storage": _slow("storage", 0.3, named=False),
    "slow storage for all": _slow("storage", 0.4, named=False, everyone=True),
    "slow network": _slow("network", 0.4, named=False),
    "no core on all hosts": _slow("no core", 0.4, named=False, everyone=True),
    "lower clocks on all hosts": _slow("clock", 0.3, named=False, gpu=True, everyone=True),
}
HEALTHY: dict[str, Made] = {
    "even": _healthy(),
    "evaluations": _healthy(evaluates_every_s=600.0, evaluation_s=70.0),
    "long evaluations": _healthy(evaluates_every_s=1800.0, evaluation_s=500.0),
    "sequences that grow": _healthy(drift=0.25),
    "a pace that wanders": _healthy(wander=0.1),
    "busy hosts": _healthy(no_core=0.15, noise=0.1),
}
