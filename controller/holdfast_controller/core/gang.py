"""What a job asks for, as the core sees it: pools, their workers and the ranks, all resolved and frozen.

Worker ``i`` of the gang is ``members[i]``; global ranks count through the members in order, so that rank 0
is the first process of the primary.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.hang.tuning import HangSettings


class Success(enum.Enum):
    """When a job counts as done."""

    PRIMARY = "PRIMARY"
    ALL = "ALL"


@dataclass(frozen=True)
class Task:
    """What each rank runs. ``env`` holds (name, value) pairs, not yet expanded."""

    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    working_directory: str = ""


@dataclass(frozen=True)
class Pool:
    """Workers with one spec. Resources are for each worker; 0 reserves nothing."""

    replicas: int
    task: Task
    processes: int = 1
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of the gang, wherever it is placed."""

    index: int
    name: str
    pool: int
    replica: int
    first_rank: int
    processes: int

    @property
    def ranks(self) -> range:
        """Its global ranks."""
        return range(self.first_rank, self.first_rank + self.processes)


@dataclass(frozen=True)
class Gang:
    """All workers of a job and the rules for them. Times in seconds."""

    pools: tuple[Pool, ...]
    timeout_s: float = 604800.0
    grace_s: float = 10.0
    end_grace_s: float = 300.0
    max_worker_restarts: int = 5
    success: Success = Success.PRIMARY
    hang: HangSettings = field(default_factory=HangSettings)
    max_hang_restarts: int = 3

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Every worker in rank order."""
        found: list[Member] = []
        rank = 0
        for p, pool in enumerate(self.pools):
            for r in range(pool.replicas):
                found.append(Member(len(found), f"workerpool{p}-{r}", p, r, rank, pool.processes))
                rank += pool.processes
        return tuple(found)

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        """Index of each worker by its name."""
        return {member.name: member.index for member in self.members}

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        last = self.members[-1]
        return last.first_rank + last.processes

    def pool_of(self, member: Member) -> Pool:
        """The pool that a worker belongs to."""
        return self.pools[member.pool]
