"""The queue: jobs that wait for hosts, in the order in which they are served.

Kept sorted as jobs come and go, so that reading its head or a job's position needs no sorting: both
take microseconds with ten thousand jobs waiting. Most of these want the same as others: they stand in one line, and a
pass that finds nothing for one of them need not look at those behind it.

Beside that order the queue knows the jobs of each class by their project: with fair share they are served by what the
projects had so far, which changes all the time (see ``scheduling.fair_share.turns``).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

Turn = tuple[bool, int, bool, int]
"""Sort key of the queue: jobs that ran before they failed, then by priority, not SPOT before SPOT, by submission."""
Class = tuple[bool, int, bool]
"""A turn but for the submission."""
InLine = list[tuple[int, str]]
"""Jobs by their submission."""

_Head = tuple[Turn, str, str, int, list[tuple[Turn, str]], Collection[str]]
"""A job, its line, its place in that, all jobs of it, and those that stand apart."""
PLACEMENT_TRIES = 3
"""Tries to place a job that doesn't wait."""


@dataclass
class Queue:
    """Jobs by their turn, lowest first. The turn of a job doesn't change while it waits."""

    _order: list[tuple[Turn, str]] = field(default_factory=list)
    _turns: dict[str, Turn] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    """By job: its line, which is the same for all that wait alike; empty for one that is served by itself."""
    _by_line: dict[str, list[tuple[Turn, str]]] = field(default_factory=dict)
    _classes: dict[Class, dict[str, InLine]] = field(default_factory=dict)
    """By project in it, which a job keeps too while it waits."""
    _projects: dict[str, str] = field(default_factory=dict)
    spot: int = 0
    """SPOT jobs among them."""
    _known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Equal lines are one object, which a pass over a long queue finds in the processor's cache."""

    def add(self, job_id: str, turn: Turn, line: str = "", project: str = "") -> None:
        """Take a job in at its turn; one that waits already stays where it is."""
        if job_id not in self._turns:
            self._turns[job_id], self._projects[job_id] = turn, project
            self.spot += turn[2]
            bisect.insort(self._order, (turn, job_id))
            bisect.insort(self._classes.setdefault(turn[:3], {}).setdefault(project, []), (turn[3], job_id))
        self.put_in_line(job_id, line)

    def put_in_line(self, job_id: str, line: str) -> None:
        """Note how a job waits from now on, if it does; its turn stays."""
        if job_id not in self._turns:
            return
        before = self.lines.get(job_id)
        if before == line:
            return
        if before is not None:
            self._leave_line(job_id, before)
        if len(self._known) > 2 * len(self._turns) + 100:
            self._known = {known: known for known in self.lines.values()}
        line = self.lines[job_id] = self._known.setdefault(line, line)
        bisect.insort(self._by_line.setdefault(line, []), (self._turns[job_id], job_id))

    def _leave_line(self, job_id: str, line: str) -> None:
        jobs = self._by_line[line]
        del jobs[bisect.bisect_left(jobs, (self._turns[job_id], job_id))]
        if not jobs:
            del self._by_line[line]

    def discard(self, job_id: str) -> None:
        """Remove a job, if it is in the queue."""
        turn = self._turns.get(job_id)
        if turn is not None:
            self._leave_line(job_id, self.lines.pop(job_id))
            del self._turns[job_id]
            self.spot -= turn[2]
            del self._order[bisect.bisect_left(self._order, (turn, job_id))]
            self._leave_project(job_id, turn)

    def _leave_project(self, job_id: str, turn: Turn) -> None:
        project, projects = self._projects.pop(job_id), self._classes[turn[:3]]
        jobs = projects[project]
        del jobs[bisect.bisect_left(jobs, (turn[3], job_id))]
        if not jobs:
            del projects[project]
        if not projects:
            del self._classes[turn[:3]]

    def ahead_of(self, turn: Turn, job_id: str) -> int:
        """How many are ahead of a job with this turn, by the queue's own order."""
        return bisect.bisect_left(self._order, (turn, job_id))

    def classes(self) -> list[tuple[Class, dict[str, InLine]]]:
        """The jobs of each class by project, the first class first; not to be changed."""
        return sorted(self._classes.items(), key=lambda each: each[0])

    def in_turn(self, passed: Collection[str], apart: Mapping[str, str]) -> Iterator[str]:
        """From the head on, as they wait now, without those whose line is ``passed`` by the time of their turn.

        Some jobs may stand ``apart``, in another line than is noted.
        """
        there: dict[str, list[tuple[Turn, str]]] = {}
        for name, line in apart.items():
            there.setdefault(line, []).append((self._turns[name], name))
        lines = [
            *((line, jobs.copy(), apart) for line, jobs in self._by_line.items()),
            *((line, sorted(jobs), ()) for line, jobs in there.items()),
        ]
        heads = [head for each in lines if (head := _head(*each)) is not None]
        heapq.heapify(heads)
        while heads:
            _, job_id, line, at, jobs, others = heads[0]
            if line in passed:
                heapq.heappop(heads)
                continue
            yield job_id
            if (following := _head(line, jobs, others, at + 1)) is not None:
                heapq.heapreplace(heads, following)
            else:
                heapq.heappop(heads)

    def __iter__(self) -> Iterator[str]:
        """From the head on, as they wait now: the queue may change meanwhile."""
        return (job_id for _, job_id in self._order.copy())

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._turns


def _head(line: str, jobs: list[tuple[Turn, str]], apart: Collection[str], at: int = 0) -> _Head | None:
    """The first job of a line from there on that doesn't stand apart."""
    while at < len(jobs):
        turn, name = jobs[at]
        if name not in apart:
            return turn, name, line, at, jobs, apart
        at += 1
    return None
