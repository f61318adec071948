"""Waits on real traces: the controller's reactor beside model policies, in virtual time.

    python -m bench.fleet TRACE… --policy holdfast --policy easy-perfect --jobs 2000 --spot 0.3

Waits are in hours, over all of a job's attempts. The checks of ``account`` hold in each run, or it ends with an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.fleet.account import HEADS, SAVE_EVERY_S, Account
from bench.fleet.estimates import Declared, Learned, Perfect
from bench.fleet.models import Easy, Fifo, Greedy, ShortestFirst, play
from bench.fleet.reactor import Play
from bench.fleet.traces import BadTrace, Trace, merged, read
from bench.support.report import framed, progress

from holdfast_controller.core.model.run_times import Backfill

OURS: dict[str, dict[str, Any]] = {
    "holdfast": {},
    "holdfast-strict": {"backfill": Backfill.STRICT},
    "holdfast-loan": {"backfill": Backfill.LOAN},
    "holdfast-perfect": {"perfect": True},
}
"""The controller: as it is by default, with the other values of ``backfill``, and with jobs that declare the truth."""


def _play(trace: Trace, hosts: int, each: int, *, perfect: bool = False, **options: Any) -> Account:
    if perfect:
        options["expects"] = lambda asked: trace.durations[asked.name]
    return Play(trace, hosts, each, **options).run()


POLICIES: dict[str, Callable[[Trace, int, int], Account]] = {
    **{name: partial(_play, **options) for name, options in OURS.items()},
    "fifo": lambda trace, hosts, each: play(trace, Fifo(Declared()), hosts, each),
    "greedy": lambda trace, hosts, each: play(trace, Greedy(Declared()), hosts, each),
    "easy-declared": lambda trace, hosts, each: play(trace, Easy(Declared()), hosts, each),
    "easy-learned": lambda trace, hosts, each: play(trace, Easy(Learned()), hosts, each),
    "easy-perfect": lambda trace, hosts, each: play(trace, Easy(Perfect(trace.durations)), hosts, each),
    "shortest-perfect": lambda trace, hosts, each: play(
        trace, ShortestFirst(Perfect(trace.durations)), hosts, each
    ),
}


def report(
    trace: Trace, hosts: int, each: int, policies: list[str], seeds: int, spot: float, save_every_s: float
) -> None:
    """One table, a row for each policy and seed."""
    gpu_h = trace.gpu_s / 3600
    print(f"\n### {trace.name}: {len(trace.requests):,} jobs, {gpu_h:,.0f} GPU h, {hosts} hosts of {each} GPUs\n")
    print("| policy | " + " | ".join(HEADS) + " |")
    print("| --- " * (len(HEADS) + 1) + "|")
    for seed in range(seeds):
        played = trace.shaken(seed, spot)
        for policy in policies:
            progress(f"{trace.name}, {policy}, seed {seed}")
            if policy in OURS:
                account = _play(played, hosts, each, save_every_s=save_every_s, **OURS[policy])
            else:
                account = POLICIES[policy](played, hosts, each)
            name = f"{policy}, shaken by seed {seed}" if seed else policy
            print(f"| {name} | " + " | ".join(account.row()) + " |", flush=True)
            if spot and policy in OURS:
                for of, which in (("STANDARD", False), ("SPOT", True)):
                    cells = account.row(which) + [""] * 3
                    print(f"| {name}: {of} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Play each trace under each policy. A policy model knows no SPOT jobs: it treats all alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a CSV file, gzipped or not")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="again for several; all by default")
    parser.add_argument("--jobs", type=int, help="only the first so many of each trace")
    parser.add_argument("--merged", action="store_true", help="the traces as those of one fleet")
    parser.add_argument("--hosts", type=int, help="by default a seventh more than the trace's mean demand")
    parser.add_argument("--gpus-per-host", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=1, help="the trace as it is, then shaken by seeds 1, 2, …")
    parser.add_argument("--spot", type=float, default=0.0, help="share of jobs that are SPOT, from 0 to 1")
    parser.add_argument(
        "--save-every", type=float, default=SAVE_EVERY_S / 60, metavar="MINUTES", help="inf where no job saves"
    )
    arguments = parser.parse_args()
    each = arguments.gpus_per_host
    with framed():
        try:
            traces = [read(path, arguments.jobs) for path in arguments.traces]
        except (BadTrace, OSError) as problem:
            sys.exit(f"bench.fleet: {problem}")
        for trace in [merged(traces)] if arguments.merged else traces:
            hosts = arguments.hosts or trace.hosts(each)
            policies, save_every_s = arguments.policy or list(POLICIES), arguments.save_every * 60
            report(trace, hosts, each, policies, arguments.seeds, arguments.spot, save_every_s)


if __name__ == "__main__":
    main()
