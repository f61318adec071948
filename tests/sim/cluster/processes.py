"""The process tables of the hosts. Pids are few, so they come again soon; some processes ignore TERM, or KILL."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast._session.reports import WorkerId

PIDS = 60
KILL = 9
TERM = 15


class OpenFindings(enum.Enum):
    """Of a process."""

    RUNS = 1
    ZOMBIE = 2
    GONE = 3


@dataclass(eq=False)
class Process:
    """A rank, or what a rank has left behind. ``status`` is the raw wait status once it has ended."""

    host: str
    pid: int
    birth: int
    key: WorkerId
    generation: int
    rank: int
    gpus: tuple[str, ...]
    helper: bool = False
    standing: OpenFindings = OpenFindings.RUNS
    status: int | None = None
    unkillable: bool = False
    deaf: bool = False
    """It ignores TERM."""
    doomed: bool = False
    """KILL was sent and has not had its effect yet."""
    hung: bool = False
    fence_at: float | None = None
    """True time at which its shim ends it unless the controller is heard; None: never."""
    ended_at: float = 0.0

    @property
    def runs(self) -> bool:
        """Not even a zombie."""
        return self.standing is OpenFindings.RUNS


@dataclass
class ProcessTable:
    """Of one host."""

    host: str
    ended: Callable[[Process], None]
    """Told of each end, before anybody has reaped it."""
    running: dict[tuple[WorkerId, int], dict[int, Process]] = field(default_factory=dict)
    """By place and generation, then by pid; zombies included."""
    _taken: set[int] = field(default_factory=set)
    _next: int = 0
    _births: int = 0

    def spawn(
        self, key: WorkerId, generation: int, rank: int, gpus: tuple[str, ...], *, helper: bool = False
    ) -> Process:
        """A new process, under the next pid that is free."""
        while True:
            self._next = self._next % PIDS + 1
            if self._next not in self._taken:
                break
        self._births += 1
        process = Process(self.host, self._next, self._births, key, generation, rank, gpus, helper)
        self._taken.add(process.pid)
        self.running.setdefault((key, generation), {})[process.pid] = process
        return process

    def end(self, process: Process, status: int) -> None:
        """It ends; a zombie until somebody reaps it."""
        if process.runs:
            process.standing, process.status = OpenFindings.ZOMBIE, status
            self.ended(process)

    def reap(self, process: Process) -> None:
        """Its pid is free again."""
        process.standing = OpenFindings.GONE
        self._taken.discard(process.pid)
        group = self.running.get((process.key, process.generation))
        if group is not None:
            group.pop(process.pid, None)
            if not group:
                del self.running[process.key, process.generation]

    def of(self, key: WorkerId, up_to: int) -> list[Process]:
        """A place's processes of generations up to one, zombies included."""
        return [
            process
            for (place, generation), group in self.running.items()
            if place == key and generation <= up_to
            for process in group.values()
        ]

    def all_running(self) -> list[Process]:
        """Whatever runs."""
        return [p for group in self.running.values() for p in group.values() if p.runs]

    def power_off(self) -> list[Process]:
        """Everything is gone at once; returns what ran."""
        ran = self.all_running()
        for group in self.running.values():
            for process in group.values():
                process.standing = OpenFindings.GONE
        self.running.clear()
        self._taken.clear()
        return ran
