"""``python -m tests.sim.run``: seeds, one after the other; the first that fails is shrunk and told."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim import generator
from tests.sim.coverage import FAULTS, TRANSITIONS
from tests.sim.engine import Violation
from tests.sim.plan import Plan
from tests.sim.world import World


def attempt(plan: Plan) -> tuple[World, Exception | None]:
    """Carry a plan out. What a core raises is a failure as well."""
    world = World(plan)
    try:
        world.run()
    except Violation as violation:
        return world, violation
    except Exception as error:  # noqa: BLE001 - any failure of the code under test is what we look for
        return world, error
    return world, None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--keep-going", action="store_true")
    args = parser.parse_args()
    events, failed, began = 0, 0, time.process_time()
    pairs: Counter[tuple[str, str]] = Counter()
    for seed in range(args.first, args.first + args.seeds):
        world, problem = attempt(generator.draw(seed))
        events += world.engine.events
        pairs += world.coverage.pairs
        if problem is not None:
            failed += 1
            print(f"seed {seed}: {type(problem).__name__}: {problem}", flush=True)
            if not args.keep_going:
                return 1
    took = time.process_time() - began
    print(f"{args.seeds} seeds, {failed} failed, {events} events, {events / took:.0f} events/s")
    print(len(pairs), "of", len(TRANSITIONS) * len(FAULTS))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
