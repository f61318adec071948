"""Passes a signal on to the ranks of a task, where its sender has not given it to them itself.

Which processes of a task get a signal differs: a Slurm that knows them by cgroups, as most do, signals the process that
it started and no other; one that knows them by who started whom signals them all.
"""

from __future__ import annotations

import contextlib
import json
import signal
from pathlib import Path

from holdfast.dev import processes

SPREADS_S = 0.25
"""A sender that signals every process of a task has reached the last of them so soon after the first."""


def was_sent_to(pid: int, number: signal.Signals) -> bool:
    """Whether the signal, which that process blocks for good, was sent to it at any time."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            name, _, mask = line.partition(":")
            if name == "ShdPnd":
                return bool(int(mask, 16) >> (number - 1) & 1)
    return False


def pass_on(folder: Path, number: signal.Signals) -> None:
    """Send the signal to each rank that runs of the workers in a guard's folder."""
    for worker in folder.glob("state/workers/*/*/"):
        for rank in _started(worker):
            with contextlib.suppress(PermissionError):
                processes.send(rank, number)


def _started(worker: Path) -> list[processes.Process]:
    """The ranks of which the worker's shim has written down last that they started; they may have ended."""
    journals = {int(path.stem[1:]): path for path in worker.glob("g*.journal") if path.stem[1:].isdecimal()}
    found = []
    with contextlib.suppress(OSError, ValueError):  # a line that is written just now, the worker's removal
        for line in journals[max(journals)].read_bytes().splitlines():
            said = json.loads(line.partition(b" ")[2])
            if said["ev"] == "started":
                found.append(processes.Process(said["pid"], said["start_ticks"]))
    return found
