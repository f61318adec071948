"""Commands under ``holdfast guard``, and what they may not leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PATIENCE_S = 300.0
"""A guard is several Python programs, on a machine where much else runs."""

# Rank 1 fails as FAILS says in each generation in turn ("3,0": with 3, then not at all); others wait to be stopped,
# or end once a generation is no failure. None fails before all have printed who they are.
RANKS = """\
import os, pathlib, sys, time
rank, generation = os.environ["RANK"], int(os.environ["HOLDFAST_GENERATION"])
codes = os.environ["FAILS"].split(",")
code = int(codes[min(generation, len(codes)) - 1])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} local {os.environ['LOCAL_RANK']} generation {generation}", flush=True)
if code:
    pathlib.Path(f"came-{generation}-{rank}").write_text("")
while code and rank == os.environ.get("GUILTY", "0"):
    if len(list(pathlib.Path().glob(f"came-{generation}-*"))) == int(os.environ["WORLD_SIZE"]):
        sys.exit(code)
    time.sleep(0.05)
if code:
    time.sleep(1000)
"""
WAITS = """\
import os, pathlib, signal, time
rank = os.environ["RANK"]
caught = open(f"caught-{rank}", "w", buffering=1)
signal.signal(signal.SIGUSR1, lambda *_: print("USR1", file=caught))
pathlib.Path(f"up-{rank}").write_text(str(os.getpid()))
while True:
    time.sleep(0.1)  # a signal that comes just before the kernel's call would wait for the end of a long sleep
"""
"""Writes down each SIGUSR1, and ends by itself never."""


# Runs until there is a file "over"; says under which numbers, its launcher's too.
GOES_ON = """\
import os, pathlib, time
rank, generation = os.environ["RANK"], os.environ["HOLDFAST_GENERATION"]
numbers = " ".join(os.environ.get(name, "") for name in os.environ["NUMBERS"].split())
print(f"rank {rank} of {os.environ['WORLD_SIZE']} as {numbers} generation {generation}", flush=True)
pathlib.Path(f"up-{rank}-{generation}").write_text(str(os.getppid()))
while not os.path.exists("over"):
    time.sleep(0.1)
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A user's, with scratch of its own and nothing of a scheduler's."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "HOLDFAST_"))}
    return {**kept, "TMPDIR": str(scratch), **more}


GUARD = (sys.executable, "-m", "holdfast", "guard")


def guard(folder: Path, *arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A guard that runs in the folder, to its end."""
    return subprocess.run(
        [*GUARD, *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"this did not come: {what}"
        time.sleep(0.05)


def processes(environ: Mapping[str, str]) -> dict[int, str]:
    """Every process that runs with this guard's scratch folder in its environment or arguments, but ourselves."""
    mark = environ["TMPDIR"].encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes() or mark in (entry / "cmdline").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def rank_pid(environ: Mapping[str, str], rank: int, *, generation: int) -> int:
    """The pid of a rank."""
    for pid in processes(environ):
        found = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        if {b"RANK=%d" % rank, b"HOLDFAST_GENERATION=%d" % generation} <= found:
            return pid
    raise AssertionError(f"rank {rank} is not there")


def guard_of(environ: Mapping[str, str], task: int) -> int:
    """The pid of the guard of a task in a step of Slurm."""
    guards = [
        pid for pid, line in processes(environ).items() if " -m holdfast guard " in line and "tied" not in line
    ]
    mark = b"SLURM_PROCID=%d\0" % task
    (found,) = [pid for pid in guards if mark in Path(f"/proc/{pid}/environ").read_bytes()]
    return found


def nothing_is_left(environ: Mapping[str, str]) -> None:
    """No process of the guard's or the command's, and nothing in scratch, once what ends has had its time."""
    wait_for(lambda: not processes(environ), "no process is left")
    wait_for(lambda: not list(Path(environ["TMPDIR"]).iterdir()), "scratch is empty")
