"""Dependencies: jobs whose ends another job waits for, before it waits for hosts.

A job keeps those of its dependencies that have not ended in its phase; ``Dependents`` is the same turned round, so that
an end finds who waits for it without a look at every job. A job can name only jobs that exist: there are no cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import DependencyEnd


@dataclass(frozen=True)
class Dependency:
    """The job of which an end is waited for, and which end."""

    job: str
    end: DependencyEnd = DependencyEnd.OK


@dataclass
class Dependents:
    """Jobs that wait for other jobs, by the job that they wait for."""

    _waiting: dict[str, set[str]] = field(default_factory=dict)
    _open: dict[str, int] = field(default_factory=dict)
    """By job that waits: how many it waits for."""

    def add(self, job_id: str, after: Iterable[Dependency]) -> None:
        """Note what a job waits for."""
        for each in after:
            self._waiting.setdefault(each.job, set()).add(job_id)
            self._open[job_id] = self._open.get(job_id, 0) + 1

    def discard(self, job_id: str, after: Iterable[Dependency]) -> None:
        """A job waits for these no more."""
        for each in after:
            self._waiting[each.job].remove(job_id)
            self._open[job_id] -= 1
            if not self._waiting[each.job]:
                del self._waiting[each.job]
            if not self._open[job_id]:
                del self._open[job_id]

    def of(self, job_id: str) -> frozenset[str]:
        """The jobs that wait for the end of this one."""
        return frozenset(self._waiting.get(job_id, ()))

    @property
    def ends(self) -> int:
        """How many ends are waited for, each counted for every job that waits for it."""
        return sum(self._open.values())

    def __iter__(self) -> Iterator[str]:
        """Every job that waits for another one."""
        return iter(self._open)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._open

    def __len__(self) -> int:
        return len(self._open)
