"""The controller's database: a log that is only appended to, epochs, and what is kept of watches."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.job import Job
from holdfast_controller.core.step.step import Entry
from holdfast_controller.shell.store import codec


class Deposed(Exception):
    """Another controller has begun a newer epoch."""


class Fate(enum.Enum):
    """What becomes of a commit."""

    LANDS = 1
    LANDS_UNANSWERED = 2
    """It is durable, and the controller is told that it failed."""
    FAILS = 3


@dataclass(frozen=True)
class Record:
    """An entry as stored; ``event`` is what was serialised, for the oracles."""

    sequence: int
    type: str
    version: int
    payload: str
    event: Any
    state: str
    words: str


@dataclass
class Database:
    """On a machine of its own that never fails: what is committed is durable."""

    epoch: int = 0
    log: list[Record] = field(default_factory=list)
    watches: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """Snapshots of jobs that have ended."""
    check_epoch: bool = True
    """A planted bug turns it off."""
    begun: list[float] = field(default_factory=list)
    """When each epoch began, in true time."""

    def begin(self, now: float) -> int:
        """A controller takes the database over: its epoch."""
        self.epoch += 1
        self.begun.append(now)
        return self.epoch

    def commit(self, epoch: int, records: list[Record], watches: list[tuple[str, str | None]]) -> None:
        """All of it or nothing. Raises ``Deposed``."""
        if self.check_epoch and epoch != self.epoch:
            raise Deposed
        self.log.extend(records)
        for job, payload in watches:
            self.watches.pop(job, None)
            if payload is not None:
                self.watches[job] = payload

    def keep_ended(self, epoch: int, cluster: Cluster) -> None:
        """Write snapshots of jobs that have ended, after which a controller needs no more than their heads."""
        if epoch != self.epoch:
            return
        for job in cluster.jobs.whole.values():
            if job.terminal:
                self.ended[job.id] = codec.dump_entity(job)
        cluster.jobs.read = self.read_ended
        cluster.let_go(cluster.sequence, keep=0)

    def read_ended(self, names: Sequence[str]) -> list[Job]:
        """The jobs as they were written."""
        return [codec.load_entity("job", self.ended[name]) for name in names]


def record(entry: Entry) -> Record:
    """As the driver makes one, when it takes a batch."""
    name = codec.stored_name(type(entry.event))
    about = getattr(entry.event, "job_id", "") or getattr(entry.event, "host", "cluster")
    words = f"{about} {name}: {entry.message}"
    return Record(
        entry.sequence,
        name,
        codec.VERSIONS[name],
        codec.dump_event(entry.event),
        entry.event,
        entry.state,
        words,
    )
