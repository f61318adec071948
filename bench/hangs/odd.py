"""Programs that hang while something goes on printing, and healthy ones that print oddly, as real processes.

``python -m bench.hangs.odd [NAME ...]``: ``odd_hung.py`` and ``odd_healthy.py`` under the agent's sampler and the
detector, at a fifth of the defaults' times, as ``real.py`` plays its gangs. Seconds since the program began to be odd.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.hangs.odd_healthy import HEALTHY
from bench.hangs.odd_hung import HUNG
from bench.hangs.programs import silent_server
from bench.hangs.real import KEY, Cores, Outcome, Run, slow_down
from bench.hangs.real_cases import Case

from holdfast_agent.core.launch.environment import log_paths, progress_dir

RANKS = 2
BUSY = (
    "livelock", "busy peer", "loss", "countdown", "evaluate", "compile", "tokenising", "worker at work", "thread"
)  # fmt: skip
"""Words in the names of programs that burn a core or more."""


class OddRun(Run):
    """Two ranks of one odd program."""

    def start(self) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        env |= {"WORLD_SIZE": str(RANKS), "LAST_S": str(self.case.lasts_s), "PYTHONPATH": os.getcwd()}
        env["HOLDFAST_PROGRESS_DIR"] = progress_dir(self.facts, KEY, 1)
        for number in range(RANKS):
            out, err = log_paths(self.facts, KEY, 1, number)
            with open(out, "ab") as stdout, open(err, "ab") as stderr:
                self.ranks[number] = subprocess.Popen(
                    [sys.executable, "-m", "bench.hangs.odd_programs", self.case.what],
                    env=env | {"RANK": str(number)},
                    cwd=self.folder / "work",
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )


def cases(watch_s: float) -> list[Case]:
    """All programs."""
    made = []
    for name in (*HUNG, *HEALTHY):
        burns = next((1.0 for word in BUSY if word in name), 0.1)
        made.append(Case(name, name, fault=name in HUNG, watch_s=watch_s, lasts_s=watch_s - 5, burns=burns))
    return made


def verdict(outcome: Outcome) -> str:
    """What became of a program, in words."""
    if outcome.began_s is None:
        return "never began"
    if outcome.acted_s is not None:
        after = f"noticed {outcome.since(outcome.noticed_s) or 0:.0f}, " if outcome.noticed_s else ""
        return f"{after}acted on {outcome.since(outcome.acted_s):.0f}"
    return "left alone" if outcome.noticed_s is None else f"noticed {outcome.since(outcome.noticed_s):.0f}"


async def play(chosen: Sequence[Case], root: Path, cores: float) -> None:
    slow_down()
    shared = Cores(cores)

    async def one(case: Case) -> None:
        outcome = await shared.run(case, root, lambda *_: None, OddRun)
        found = outcome.noticed_s is not None or outcome.acted_s is not None
        right = found if case.fault else outcome.acted_s is None
        truth = "hung" if case.fault else "healthy"
        print(f"{truth:8} {case.name:46} {'' if right else 'WRONG ':6}{verdict(outcome):28} {outcome.rule}")
        if outcome.sentence:
            print(f"{'':12}{outcome.sentence}", flush=True)
        if outcome.false_notice:
            print(f"{'':12}! before: {outcome.false_notice}", flush=True)

    await asyncio.gather(*(one(case) for case in chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only programs whose name has one of these in it")
    parser.add_argument("--for", dest="watch_s", type=float, default=100.0, help="seconds to watch")
    parser.add_argument("--cores", type=float, default=2.0)
    options = parser.parse_args()
    chosen = [c for c in cases(options.watch_s) if not options.names or any(n in c.name for n in options.names)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hang-odd-") as root, silent_server() as port:
        os.environ["SILENT_PORT"] = str(port)
        asyncio.run(play(chosen, Path(root), options.cores))
    print(f"{len(chosen)} programs in {time.monotonic() - began:.0f} s, load average {os.getloadavg()[1]:.0f}")


if __name__ == "__main__":
    main()
