"""A failure as a story that can be read, and the command that tells it again."""

from __future__ import annotations

from dataclasses import fields

from tests.sim.cluster.world import World
from tests.sim.faults import Weights

LINES = 60


def tell(world: World, problem: Exception) -> str:
    """What happened up to the failure: the world, what was done to it, what the log says."""
    plan = world.plan
    calm = Weights()
    hostile = [
        f"{field.name.replace('_', ' ')} {getattr(plan.weights, field.name):.2g}"
        for field in fields(Weights)
        if getattr(plan.weights, field.name) != getattr(calm, field.name)
    ]
    lines = [f"{len(plan.rates)} hosts of {plan.gpus} GPUs; {', '.join(hostile) or 'nothing fails by chance'}."]
    if any(rate != 1.0 for rate in (*plan.rates, plan.controller_rate)):
        rates = ", ".join(f"{rate:.2f}" for rate in plan.rates)
        lines.append(f"Clocks run at {rates}; the controller's at {plan.controller_rate:.2f}.")
    told = [(at, line) for at, line in world.story]
    told += [(at, f"  log: {words}") for at, words in world.oracles.logged]
    told.sort(key=lambda entry: entry[0])
    lines += [f"{at:8.2f} s  {line}" for at, line in told[-LINES:]]
    lines.append(f"{world.engine.now:8.2f} s  {type(problem).__name__}: {problem}")
    return "\n".join(lines)
