"""``make sim``: seeds, one after the other; what fails is shrunk and told as a story, with how to repeat it.

python -m tests.sim.run --seeds 1000 --from 0      that many seeds
python -m tests.sim.run --site --seeds 100         of sites with several controllers on a database
python -m tests.sim.run --replaced --seeds 100     of sites whose gang is placed anew while its old leader may live
python -m tests.sim.run --pairs                    every pair of crashes of every story: some minutes
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable

from tests.sim import enumeration, generator
from tests.sim import report as prose
from tests.sim.bugs import Bugs
from tests.sim.cluster.world import World
from tests.sim.coverage import FAULTS, TRANSITIONS
from tests.sim.engine import Violation
from tests.sim.plan import Plan
from tests.sim.several import plan as site_plan
from tests.sim.several import replacement
from tests.sim.several.plan import SitePlan
from tests.sim.several.world import Site
from tests.sim.shrink import shrink
from tests.sim.stories import STORIES


def world_of(plan: Plan, bugs: Bugs | None = None) -> World:
    """The world that a plan is for."""
    return Site(plan, bugs) if isinstance(plan, SitePlan) else World(plan, bugs)


def attempt(plan: Plan) -> tuple[World, Exception | None]:
    """Carry a plan out. What a core raises is a failure as well."""
    world = world_of(plan)
    try:
        world.run()
    except Violation as violation:
        return world, violation
    except Exception as error:  # noqa: BLE001 - whatever the code under test raises is what we look for
        return world, error
    return world, None


def kind(problem: Exception | None) -> str:
    """By which failures are the same."""
    return problem.oracle if isinstance(problem, Violation) else type(problem).__name__


def report(plan: Plan, problem: Exception) -> str:
    """A failure in words, as small as it can be made."""
    smaller = shrink(plan, lambda other: kind(attempt(other)[1]) == kind(problem))
    world, again = attempt(smaller)
    story = prose.tell(world, again or problem)
    again_by = f"make {plan.target} SEEDS=1 FROM={plan.seed}"
    return f"seed {plan.seed} fails: {problem}\n\n{story}\n\nrepeat it with: {again_by}\n"


def _coverage(pairs: Counter[tuple[str, str]], reached: Counter[str]) -> str:
    known = set(TRANSITIONS)
    reached = Counter(
        {name: reached[name] for name in reached if name in known}
    )  # two at once are none of the table's
    pairs = Counter({pair: pairs[pair] for pair in pairs if pair[0] in known})
    return (
        f"{len(reached)} of {len(TRANSITIONS)} transitions\n"
        f"{len(pairs)} of {len(TRANSITIONS) * len(FAULTS)} pairs of transition and fault"
    )


def seeds(first: int, count: int, *, keep_going: bool, draw: Callable[[int], Plan] = generator.draw) -> int:
    """Returns how many failed."""
    events = failed = 0
    began = time.process_time()
    pairs: Counter[tuple[str, str]] = Counter()
    reached: Counter[str] = Counter()
    for seed in range(first, first + count):
        plan = draw(seed)
        world, problem = attempt(plan)
        events += world.engine.events
        pairs += world.coverage.pairs
        reached += world.coverage.reached
        if problem is not None:
            failed += 1
            if not keep_going:
                print(report(plan, problem))
                break
            print(f"seed {seed}: {type(problem).__name__}: {problem}", flush=True)
    took_s = time.process_time() - began
    print(f"{count} seeds from {first}: {failed} failed; {events} events, {events / took_s:.0f} a second and core")
    print(_coverage(pairs, reached))
    return failed


def all_pairs() -> int:
    """Every pair of crashes. Returns how many failed."""
    failed = 0
    for name, plan in STORIES.items():
        count = len(enumeration.effects(plan))
        for crash_at in enumeration.pairs(count, 1):
            try:
                enumeration.run(plan, crash_at)
            except Violation as violation:
                failed += 1
                print(f"{name}, crashes before effects {crash_at}: {violation}", flush=True)
        print(f"{name}: {count * (count - 1) // 2} pairs of {count} effects", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--keep-going", action="store_true", help="one line for each failure, and on to the next")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--site", action="store_true", help="several controllers on a database")
    parser.add_argument(
        "--replaced", action="store_true", help="several controllers, and a gang that leaves a host"
    )
    args = parser.parse_args()
    logging.disable()  # controllers of a site write their own
    draw = replacement.draw if args.replaced else site_plan.draw if args.site else generator.draw
    failed = all_pairs() if args.pairs else seeds(args.first, args.seeds, keep_going=args.keep_going, draw=draw)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
