"""``python -m tests.fuzz.run --for 30m``: every target in turns, until the time is over; findings end it with 1."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import pure, server
from tests.fuzz.engine import Held, Target, bound_memory, run

from holdfast._base.config import duration_s

EXAMPLES = 200
"""Of one target, before the next one's turn."""


def main() -> int:
    """Fuzz for the time given; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="length_s", type=duration_s, default=60.0, metavar="TIME")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="number of the first turn")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--out", type=Path, help="figures as JSON")
    options = parser.parse_args()
    folder = pure.folder()
    try:
        with server.controller(folder) as served:
            bound_memory()
            every = [*pure.targets(folder), *served.targets()]
            chosen = [target for target in every if options.only in target.name]
            return _fuzz(chosen, options.length_s, options.first, options.out, served)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fuzz(targets: list[Target], length_s: float, turn: int, out: Path | None, served: server.Served) -> int:
    began, told = time.monotonic(), 0.0
    held: dict[str, Held] = {}
    while time.monotonic() - began < length_s:
        for target in targets:
            if target.findings or time.monotonic() - began >= length_s:
                continue
            before = _peak_mib()
            try:
                run(target, EXAMPLES if not target.name.startswith("HTTP") else EXAMPLES // 2, turn)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                target.findings.append("".join(traceback.format_exception(error)))
                print(f"turn {turn}: {target.name}:\n{target.findings[-1]}", flush=True)
            target.grown_mib = max(target.grown_mib, _peak_mib() - before)
        turn += 1
        held.setdefault("us", Held.now())  # after the first turn: imports and caches are there
        held.setdefault("controller", Held.now(served.pid))
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{told - began:.0f} s, turn {turn}: {sum(t.inputs for t in targets):,} inputs", flush=True)
    for name, pid in (("us", 0), ("controller", served.pid)):
        try:
            Held.now(pid).check(held[name])
        except AssertionError as error:
            targets[0].findings.append(f"{name}: {error}")
            print(f"{name}: {error}")
    _report(targets, time.monotonic() - began, turn, out)
    return 1 if any(target.findings for target in targets) else 0


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _report(targets: list[Target], took_s: float, turn: int, out: Path | None) -> None:
    for target in targets:
        found = f"  {len(target.findings)} findings" if target.findings else ""
        slowest = f"slowest {target.slowest_s * 1000:6.1f} ms"
        figures = f"{target.inputs:>10,} inputs  {slowest}  longest {target.longest:>9,} B"
        print(f"{target.name:28} {figures}  peak +{target.grown_mib:,} MiB{found}")
    print(f"{sum(target.inputs for target in targets):,} inputs in {took_s:.0f} s, {turn} turns")
    if out is not None:
        rows = [
            {"target": t.name, "inputs": t.inputs, "slowest_s": t.slowest_s, "findings": t.findings}
            for t in targets
        ]
        out.write_text(json.dumps({"seconds": took_s, "turns": turn, "targets": rows}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
