"""How much of the controller's disk the jobs of each user and project take: their history, and evidence of their hangs.

Counted on the way: each event as it is published, each piece of evidence as it is committed. After a start the stored
rows are added up in portions, and what evidence was dropped meanwhile is found out every hour. A deleted job counts no
more from that moment on.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import field
from itertools import groupby

from holdfast._base.dataclass import dataclass
from holdfast.errors import StorageFull
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.step import Decision
from holdfast_controller.shell.store.records import Record

MIB = 1 << 20
ROW_BYTES = 200
"""Of an event beside its own text: keys, the index, the checksum."""
SHOWN, LARGEST = 200, 10
"""Users and projects in an answer, and jobs."""
JOBS_AT_ONCE = 2_048
"""That are looked at in a fraction of a millisecond."""
_GONE = frozenset({"JobDeleted", "JobPurged"})
"""Events of jobs that count no more."""
NAMED = 3
"""Jobs that a refusal names, the largest first."""


@dataclass(slots=True)
class JobBytes:
    """One job's share: of evidence with its samples and dumps, and in all."""

    owner: str
    project: str
    evidence: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """``size`` and ``limit`` in bytes; a limit of 0 is none."""

    subject: str
    jobs: int
    size: int
    limit: int


@dataclass
class StoredBytes:
    """Sums by user and by project. Limits in bytes; 0: none."""

    cluster: Cluster
    user_most: int = 0
    project_most: int = 0
    counted_from: int = 0
    """Number of the event after which each is counted as it is published."""
    jobs: dict[str, JobBytes] = field(default_factory=dict)
    by_user: Counter[str] = field(default_factory=Counter)
    by_project: Counter[str] = field(default_factory=Counter)
    jobs_of_user: Counter[str] = field(default_factory=Counter)
    jobs_of_project: Counter[str] = field(default_factory=Counter)

    def on_published(self, records: Sequence[Record]) -> None:
        """Count the events of a commit."""
        for (entity, gone), run in groupby(records, lambda record: (record.entity, record.type in _GONE)):
            kind, _, job_id = entity.partition("/")
            if kind != "job":
                continue
            if gone:
                self._drop(job_id)
            else:
                self.add(job_id, sum(len(record.payload) + len(record.message) + ROW_BYTES for record in run))

    def on_committed(self, batch: Sequence[Decision]) -> None:
        """Count the evidence of a commit."""
        for decision in batch:
            for action in decision.actions:
                if isinstance(action, act.KeepEvidence):
                    size = len(action.content) + len(action.samples) + len(action.dumps)
                    self.add(action.job_id, evidence=size)

    def add(self, job_id: str, events: int = 0, evidence: int = 0) -> None:
        """Count so many bytes more for a job; nothing for one that was deleted."""
        known = self.jobs.get(job_id)
        if known is None:
            job = self.cluster.jobs.head(job_id)
            if job is None or job.deleted:
                return
            known = self.jobs[job_id] = JobBytes(job.owner, job.project)
            self.jobs_of_user[known.owner] += 1
            self.jobs_of_project[known.project] += 1
        known.evidence += evidence
        known.total += events + evidence
        self.by_user[known.owner] += events + evidence
        self.by_project[known.project] += events + evidence

    def set_evidence(self, sizes: dict[str, int]) -> None:
        """Correct what each job has of evidence: the oldest is dropped when there is too much."""
        for job_id in self.jobs.keys() | sizes.keys():
            known = self.jobs.get(job_id)
            self.add(job_id, evidence=sizes.get(job_id, 0) - (known.evidence if known is not None else 0))

    def shown(
        self, user: str, sees: Callable[[str], bool], *, everything: bool
    ) -> Generator[None, None, list[Use]]:
        """The sums that a user may see: their own, those of their projects, those of the largest jobs there; or all.

        Found a piece at each ``next``; the jobs may change between two pieces.
        """
        users = [name for name in self.by_user if everything or name == user]
        found = [Use(f"user/{name}", self.jobs_of_user[name], self.by_user[name], self.user_most) for name in users]
        projects = [name for name in self.by_project if everything or sees(name)]
        found += [
            Use(f"project/{name}", self.jobs_of_project[name], self.by_project[name], self.project_most)
            for name in projects
        ]
        found = heapq.nlargest(SHOWN, (use for use in found if use.size), key=lambda use: use.size)
        largest: list[tuple[int, int, str]] = []
        least = -1
        for number, (name, job) in enumerate(list(self.jobs.items())):
            if job.total > least and (everything or job.owner == user or sees(job.project)):
                heapq.heappush(largest, (job.total, -number, name))
                if len(largest) > LARGEST:
                    heapq.heappop(largest)
                    least = largest[0][0]
            if number % JOBS_AT_ONCE == JOBS_AT_ONCE - 1:
                yield
        return found + [Use(f"job/{name}", 1, total, 0) for total, _, name in sorted(largest, reverse=True)]

    def _drop(self, job_id: str) -> None:
        gone = self.jobs.pop(job_id, None)
        if gone is not None:
            self.by_user[gone.owner] -= gone.total
            self.by_project[gone.project] -= gone.total
            self.jobs_of_user[gone.owner] -= 1
            self.jobs_of_project[gone.project] -= 1

    def check(self, owner: str, project: str) -> None:
        """Raises ``StorageFull`` where the jobs of the user or the project take all that they may."""
        if self.user_most and self.by_user[owner] >= self.user_most:
            mine = {job_id: held for job_id, held in self.jobs.items() if held.owner == owner}
            raise self._full(f"The jobs of {owner}", self.by_user[owner], "a user's", self.user_most, mine)
        if self.project_most and self.by_project[project] >= self.project_most:
            its = {job_id: held for job_id, held in self.jobs.items() if held.project == project}
            what = f"The jobs of project {project}"
            raise self._full(what, self.by_project[project], "a project's", self.project_most, its)

    def full(self) -> frozenset[str]:
        """Users and projects, such as ``user/ann``, whose jobs take all that they may."""
        users = [f"user/{name}" for name, size in self.by_user.items() if 0 < self.user_most <= size]
        projects = [f"project/{name}" for name, size in self.by_project.items() if 0 < self.project_most <= size]
        return frozenset(users + projects)

    def _full(self, what: str, used: int, whose: str, most: int, jobs: dict[str, JobBytes]) -> StorageFull:
        going = {name for name, job in self.cluster.jobs.whole.items() if not job.terminal}
        ended = {job_id: held for job_id, held in jobs.items() if job_id not in going}
        largest = heapq.nlargest(NAMED, ended, key=lambda job_id: ended[job_id].total)
        named = ", ".join(f"{job_id} ({ended[job_id].total / MIB:,.1f} MiB)" for job_id in largest)
        first = f"Delete jobs that have ended, such as: holdfast job delete {largest[0]}. " if largest else ""
        rest = f"The largest: {named}. " if named else "None of them has ended: cancel one and delete it. "
        return StorageFull(
            f"{what} take {used / MIB:,.0f} MiB of the controller's disk; {whose} may take {most / MIB:,.0f}.",
            fix=f"{first}{rest}See: holdfast usage. An admin can raise the limit in [retention] of controller.toml.",
        )
