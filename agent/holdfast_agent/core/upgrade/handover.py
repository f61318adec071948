"""From one agent to the next: what must not be interrupted, and whether every process is the same afterwards.

Pure. The processes are compared as /proc and the journals show them, before and after: neither agent's word is
taken. A process is its pid with its start time, so that a pid that was used again is never "the same".
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from holdfast._base.dataclass import dataclass
from holdfast_agent.core.worker.states import Closing, Freeing, Launching, Lost, Prepared, Preparing, Stopping
from holdfast_agent.core.worker.worker import Worker


def in_flight(worker: Worker, *, examined: bool) -> str:
    """Operation in flight on a worker that its agent should finish; empty if there is none.

    Fetching, installing and pulling are not waited for: they take long, and the next agent starts them again.
    """
    generation = worker.state.generation
    match worker.state:
        case Launching():
            return f"generation {generation} is being launched"
        case Prepared():
            return f"generation {generation} waits for its launch"
        case Preparing():
            return "" if worker.doing else f"generation {generation} is being prepared"
        case Stopping() | Lost():
            return f"generation {generation} is being stopped"
        case Freeing():
            return f"the GPUs of generation {generation} are being proven free"
        case Closing():
            return f"the epilog of generation {generation} runs"
        case _:
            return "evidence of a hang is being taken" if examined else ""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the current boot, by its pid and start time."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class WorkerProcesses:
    """A worker's live processes, and the ends that its journals record."""

    name: str
    """JOB/WORKER."""
    generation: int
    shim: Process | None
    ranks: Mapping[int, Process] = field(default_factory=dict)
    ends: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(generation, rank) to how it ended, in words; begins with LOST if unknown."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All workers of a host at one moment, and which agent was there."""

    boot_id: str
    version: str
    workers: tuple[WorkerProcesses, ...]

    @property
    def processes(self) -> int:
        """Shims and ranks that live."""
        return sum((worker.shim is not None) + len(worker.ranks) for worker in self.workers)


class Verdict(enum.Enum):
    """Outcome of one process across the upgrade."""

    UNCHANGED = "unchanged"
    ENDED = "ended by itself"
    """Its end is on record."""
    LOST = "LOST"
    """It is gone and nothing says how, or another is in its place."""


@dataclass(frozen=True, slots=True)
class Row:
    """One process before and after; 0 where there is none."""

    worker: str
    process: str
    before: int
    after: int
    verdict: Verdict
    how: str = ""


def compare(before: Picture, after: Picture) -> list[Row]:
    """Every process of before, in order."""
    if before.boot_id != after.boot_id:
        return [
            Row(worker.name, name, process.pid, 0, Verdict.LOST, "the host has booted since")
            for worker in before.workers
            for name, process in _processes(worker)
        ]
    now = {worker.name: worker for worker in after.workers}
    return [row for worker in before.workers for row in _compare(worker, now.get(worker.name))]


def _compare(before: WorkerProcesses, after: WorkerProcesses | None) -> Iterator[Row]:
    ranks = [_rank(before, after, rank, process) for rank, process in sorted(before.ranks.items())]
    if before.shim is not None:
        yield _shim(before, after, before.shim, ranks)
    yield from ranks


def _shim(before: WorkerProcesses, after: WorkerProcesses | None, shim: Process, ranks: list[Row]) -> Row:
    now = after.shim if after else None
    if now == shim:
        return Row(before.name, "shim", shim.pid, shim.pid, Verdict.UNCHANGED)
    pid = now.pid if now else 0
    if all(row.verdict is Verdict.ENDED for row in ranks):
        return Row(before.name, "shim", shim.pid, pid, Verdict.ENDED, "nothing was left for it to do")
    return Row(before.name, "shim", shim.pid, pid, Verdict.LOST, "gone while its ranks ran")


def _rank(before: WorkerProcesses, after: WorkerProcesses | None, rank: int, process: Process) -> Row:
    name = f"rank {rank}"
    if after is None:
        # Its files go only once the controller has acknowledged every end and wants it forgotten.
        return Row(before.name, name, process.pid, 0, Verdict.ENDED, "its job is over, its ends are acknowledged")
    now = after.ranks.get(rank)
    if now == process:
        return Row(before.name, name, process.pid, process.pid, Verdict.UNCHANGED)
    pid = now.pid if now else 0
    how = after.ends.get((before.generation, rank), "")
    if how and not how.startswith("LOST"):
        return Row(before.name, name, process.pid, pid, Verdict.ENDED, how)
    return Row(before.name, name, process.pid, pid, Verdict.LOST, how or "gone, and nothing says how")


def _processes(worker: WorkerProcesses) -> Iterator[tuple[str, Process]]:
    if worker.shim is not None:
        yield "shim", worker.shim
    for rank, process in sorted(worker.ranks.items()):
        yield f"rank {rank}", process


def table(rows: Iterable[Row]) -> str:
    """The comparison as text for people, one line for each process."""
    lines = [("WORKER", "PROCESS", "BEFORE", "AFTER", "")]
    last = ""
    for row in rows:
        told = f"{row.verdict.value}{': ' if row.how else ''}{row.how}"
        name = "" if row.worker == last else row.worker
        lines.append((name, row.process, str(row.before), str(row.after) if row.after else "-", told))
        last = row.worker
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line[:4], widths, strict=True)), line[4]]).rstrip()
        + "\n"
        for line in lines
    )


def to_json(picture: Picture) -> dict[str, Any]:
    """The picture as JSON that ``from_json``, maybe of a later version, can read."""
    return {
        "boot_id": picture.boot_id,
        "version": picture.version,
        "workers": [
            {
                "name": worker.name,
                "generation": worker.generation,
                "shim": worker.shim and [worker.shim.pid, worker.shim.start_ticks],
                "ranks": {str(rank): [each.pid, each.start_ticks] for rank, each in worker.ranks.items()},
            }
            for worker in picture.workers
        ],
    }


def from_json(data: Any) -> Picture:
    """The picture that ``to_json`` wrote. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for other data."""
    return Picture(
        str(data["boot_id"]),
        str(data["version"]),
        tuple(
            WorkerProcesses(
                str(each["name"]),
                int(each["generation"]),
                Process(*map(int, each["shim"])) if each["shim"] else None,
                {int(rank): Process(*map(int, found)) for rank, found in each["ranks"].items()},
            )
            for each in data["workers"]
        ),
    )
