"""Makes a failing plan smaller for as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

from tests.sim.faults import Weights
from tests.sim.plan import Plan

MOST_RUNS = 300


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The smallest plan found that still ``fails``: fewer moves, fewer kinds of faults, honest clocks."""
    runs = 0
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(plan):
            runs += 1
            if runs > MOST_RUNS:
                return plan
            if fails(smaller):
                plan, changed = smaller, True
                break
    return plan


def _smaller(plan: Plan) -> Iterator[Plan]:
    for name in ("moves", "faults"):  # the second are those of a site with several controllers
        done = getattr(plan, name, ())
        step = len(done)
        while step > 0:
            for start in range(0, len(done), step):
                yield replace(plan, **{name: done[:start] + done[start + step :]})  # type: ignore[arg-type]
            step //= 2
    for field in fields(Weights):
        if not field.name.endswith("_s") and getattr(plan.weights, field.name):
            yield replace(plan, weights=replace(plan.weights, **{field.name: 0.0}))
    if any(rate != 1.0 for rate in (*plan.rates, plan.controller_rate)):
        yield replace(plan, rates=(1.0,) * len(plan.rates), controller_rate=1.0)
    if plan.has_epilog:
        yield replace(plan, has_epilog=False)
