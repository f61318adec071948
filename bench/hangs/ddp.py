"""PyTorch DDP trainings on gloo that hang, with default settings and action RESTART: ``python -m bench.hangs.ddp``.

Each case is a job on a dev cluster of its own, so that none of them is another's common cause; all of them train at the
same time. Prints when each hang was noticed and acted on, in seconds from the fault, and whether it was one hang with
one notice, whether its evidence was kept, and which rank was named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import anyio

from holdfast import dev, settings
from holdfast._sdk import json_view
from holdfast.client import TERMINAL, Client
from holdfast.errors import HoldfastError

GANG = Path(__file__).with_name("ddp_gang.py")
TRAINED_S = 130.0
"""After so many seconds of training the rate of progress is known."""
FAULTS = ("SIGSTOP", "sleep", "mismatch", "dead loader", "stopped loader", "SIGSTOP, busy peers")
LIMITS_S = {"trained": 90.0, "start-up": 240.0}


@dataclass
class Case:
    """One job: a fault, under torchrun or not, after the rate is known or in start-up."""

    fault: str
    launcher: str
    when: str
    job: str = ""
    # The last words about its health before the fault.
    before: str = ""
    last: dict[str, Any] = field(default_factory=dict)
    done: bool = False

    @property
    def name(self) -> str:
        return f"{self.fault}, {self.launcher}, {self.when}"

    @property
    def ranks(self) -> int:
        # Of two ranks in different collectives none is the odd one.
        return 3 if self.fault == "mismatch" else 2

    @property
    def folder(self) -> str:
        return "".join(letter if letter.isalnum() else "-" for letter in self.name)

    def command(self) -> tuple[list[str], list[str]]:
        """Options of ``holdfast run``, and the command."""
        after_s = TRAINED_S if self.when == "trained" else 0.0
        program = [str(GANG), self.fault, str(after_s)]
        if self.launcher == "torchrun":
            torchrun = str(Path(sys.executable).with_name("torchrun"))
            return [], [torchrun, "--standalone", "--nproc-per-node", str(self.ranks), *program]
        return ["--processes-per-worker", str(self.ranks)], [sys.executable, *program]


CASES = tuple(
    Case(fault, launcher, when)
    for when in LIMITS_S
    for fault in FAULTS
    for launcher in ("alone", "torchrun")
    if when == "trained" or fault in ("SIGSTOP", "mismatch", "dead loader")
)


def said(command: list[str], env: dict[str, str]) -> str:
    """What a command prints; one that fails ends this program with its message."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def started(root: Path, case: Case) -> Iterator[None]:
    """The case's own cluster, and its job."""
    where, work = root / case.folder / "cluster", root / case.folder / "work"
    work.mkdir(parents=True)
    env = os.environ | {"HOLDFAST_CONFIG": str(where / "client.toml"), "NO_COLOR": "1"}
    holdfast = [sys.executable, "-m", "holdfast"]
    start = [*holdfast, "dev", "start", "--hosts", "1", "--gpus", "0", "--dir", str(where)]
    try:
        said(start, env)
        options, command = case.command()
        options += ["--detach", "--restart-on-hang", "--env", f"WORK={work}", "--env", "OMP_NUM_THREADS=1"]
        run = [*holdfast, "run", *options, "--workdir", str(work), "--", *command]
        case.job = said(run, env).strip()
        yield
    finally:
        if (where / "dev.toml").exists():
            dev.stop(where)


async def look(root: Path, case: Case) -> None:
    """Take in how the job is; once it has ended with all its events and the evidence of its first hang."""
    with contextlib.suppress(HoldfastError):
        async with Client(settings.load(root / case.folder / "cluster" / "client.toml")) as client:
            found = await client.get_job(case.job)
            case.last = json_view.job(found)
            if not (root / case.folder / "work" / "began").exists():
                case.before = case.last.get("health", "")
            if found.state in TERMINAL:
                events = [json_view.event(event) async for event in client.watch_job(case.job)]
                case.last["noticed"] = sum(event["type"] == "HangNoticed" for event in events)
                case.done = True


def evidence(root: Path, case: Case) -> int:
    """How many ranks have a Python stack among the evidence of the first hang."""
    env = os.environ | {"HOLDFAST_CONFIG": str(root / case.folder / "cluster" / "client.toml")}
    told = json.loads(said([sys.executable, "-m", "holdfast", "job", "hangs", case.job, "-o", "json"], env))
    workers = (told.get("evidence") or {}).get("workers", [])
    return sum(len(worker["evidence"]["ranks"]) for worker in workers if worker["evidence"]["frames"])


def since(root: Path, case: Case, at: str) -> float | None:
    """Seconds from the fault to the time."""
    began = root / case.folder / "work" / "began"
    if not at or not began.exists():
        return None
    return datetime.fromisoformat(at).timestamp() - float(began.read_text())


def verdict(case: Case, acted_s: float | None, kept: int) -> str:
    """ "right", or what is wrong."""
    hangs, wrong = case.last.get("hangs", []), []
    if len(hangs) != 1:
        wrong.append(f"{len(hangs)} hangs")
    if case.last.get("noticed", 0) != 1:
        wrong.append(f"{case.last.get('noticed', 0)} notices")
    if acted_s is None or acted_s > LIMITS_S[case.when]:
        wrong.append("acted on late" if acted_s else "not acted on")
    if hangs and hangs[0]["suspects"] != [f"workerpool0-0 rank {case.ranks - 1}"]:
        wrong.append(f"blames {hangs[0]['suspects']}")
    if not kept:
        wrong.append("no stack kept")
    if not case.last.get("state", "").endswith("SUCCEEDED"):
        wrong.append(case.last.get("state", "unseen"))
    if case.when == "trained" and case.before.startswith("starting up"):
        wrong.append("its rate was not known yet")
    return "; ".join(wrong) or "right"


def report(root: Path, cases: list[Case]) -> None:
    """Print the table, with the medians."""
    print(f"load average {' '.join(f'{load:.0f}' for load in os.getloadavg())}; {os.cpu_count()} cores")
    print(f"{'case':42} {'noticed s':>9} {'acted s':>8} {'rule':14} outcome")
    times: dict[str, list[float]] = {}
    for case in cases:
        hang: dict[str, Any] = next(iter(case.last.get("hangs", [])), {})
        noticed_s = since(root, case, hang.get("noticedAt", ""))
        acted_s = since(root, case, hang.get("judgedAt", "")) if hang.get("outcome") == "RESTARTED" else None
        times.setdefault(case.when, []).append(acted_s if acted_s is not None else float("inf"))
        noticed, acted = (f"{at:.0f}" if at is not None else "-" for at in (noticed_s, acted_s))
        words = verdict(case, acted_s, evidence(root, case))
        print(f"{case.name:42} {noticed:>9} {acted:>8} {hang.get('rule', ''):14} {words}")
        if words != "right":
            print(f"    before: {case.before}\n    now: {case.last.get('health', '')}")
            for one in case.last.get("hangs", []):
                print(f"    {one['number']} {one.get('outcome')}: {one['sentence']}\n        {one.get('stacks')}")
    for when, all_acted_s in times.items():
        print(f"{when}: acted on after {median(all_acted_s):.0f} s at the median, {max(all_acted_s):.0f} s at most")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases whose name has one of these in it")
    parser.add_argument("--for", dest="seconds", type=float, default=600.0, help="longest time to watch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cases = [case for case in CASES if not options.names or any(name in case.name for name in options.names)]
    with tempfile.TemporaryDirectory(prefix="ddp-") as name, contextlib.ExitStack() as stack:
        root = Path(name)
        root.chmod(0o755)
        for case in cases:
            stack.enter_context(started(root, case))
        end_s = time.monotonic() + options.seconds
        while time.monotonic() < end_s and not all(case.done for case in cases):
            time.sleep(10)
            for case in cases:
                if not case.done:
                    anyio.run(look, root, case)
        report(root, cases)


if __name__ == "__main__":
    main()
