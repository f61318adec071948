"""Allocated time as an oracle of the goodput ledger adds it up: from hosts' allocations, not from the ledger.

It folds the log by itself, as a controller does that starts from nothing, and after each event compares the time that
every host's allocations have lasted with what the ledger says, by job and by host, to the millisecond. What the
ledger books for good it takes over as the store does. A second fold, which now and then goes on from a snapshot, must
give the same ledgers and book the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_controller.core import events as ev
from holdfast_controller.core.fold.allocation import recount
from holdfast_controller.core.fold.job import fold
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import Bookings, Category, JobLedger, Seat, Statement, Tape, Usage
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.store import codec

Check = Callable[[bool, str, str], None]
NAME = "19 ledger"
SNAPSHOT_EVERY = 997
"""Events; to write a snapshot of all takes as long as to fold some hundred."""


@dataclass
class Share:
    """A worker's share while it is held."""

    host: str
    weight: int
    since: int | None = None
    """Set once it is no longer its job's."""


@dataclass
class GoodputOracle:
    """The oracle of one log."""

    check: Check
    cluster: Cluster = field(default_factory=Cluster)
    clocks: dict[str, int] = field(default_factory=dict)
    """By job that has held something: its time in ms."""
    shares: dict[str, Share] = field(default_factory=dict)
    """By ``HOST/JOB/WORKER_INDEX``: a worker may have one that is quarantined, and a new one."""
    of_job: Counter[str] = field(default_factory=Counter)
    """Allocated time by job, weight x ms, until its shares leave its account."""
    of_host: Counter[str] = field(default_factory=Counter)
    booked: Counter[str] = field(default_factory=Counter)
    """Time that the ledger has booked, by host."""
    statements: dict[str, Statement] = field(default_factory=dict)
    newest: list[tuple[Usage, dict[int, Seat]]] = field(default_factory=list)
    """What the last event has booked: it is kept by a commit that may come after the next event."""
    categories: Counter[str] = field(default_factory=Counter)
    """Booked time by category, for coverage."""
    restarted: Cluster = field(default_factory=Cluster)
    """The same log, folded from the newest snapshot on."""
    snapshot_every: int = SNAPSHOT_EVERY
    events: int = 0

    def take(self, event: ev.Event) -> None:
        """Fold one event and compare."""
        fold(self.restarted, event)
        job_id = getattr(event, "job_id", "")
        if isinstance(event, ev.HostPlaceFreed):
            job_id = event.place.rpartition("/")[0]
        at = round(event.at * 1000)
        ended = job_id in self.statements
        fold(self.cluster, event)
        if isinstance(event, ev.ClusterRestored):
            for name in list(self.clocks):
                if self.cluster.jobs[name].unreconciled is not None:
                    self._advance(name, at)
        elif job_id in self.clocks and not ended:
            freed = self.shares.get(f"{event.host}/{event.place}") if isinstance(event, ev.HostPlaceFreed) else None
            if freed is None or freed.since is None:
                self._advance(job_id, at)
        elif isinstance(event, ev.ClockLeapt):
            self._leap(round(event.by_s * 1000))
        self._replace(event, at)
        self._read_allocations(at)
        self._leave(event)
        self._compare_restarted(job_id)
        self._take_bookings()
        if isinstance(event, ev.ClusterRestored | ev.ClockLeapt):
            for name in self.clocks:
                self._compare(name)
        elif job_id in self.clocks:
            self._compare(job_id)
        self._compare_hosts()

    def _advance(self, job_id: str, at: int) -> None:
        """The job's time goes on, and with it that of its shares."""
        before, now = self.clocks[job_id], max(self.clocks[job_id], at)
        self.clocks[job_id] = now
        for key, share in self.shares.items():
            if share.since is None and _job(key) == job_id:
                self.of_job[job_id] += share.weight * (now - before)
                self.of_host[share.host] += share.weight * (now - before)

    def _leap(self, by: int) -> None:
        """No time has passed by it: all clocks go on from where it was set to."""
        for job_id in self.clocks:
            self.clocks[job_id] += by
        for share in self.shares.values():
            share.since = None if share.since is None else share.since + by

    def _replace(self, event: ev.Event, at: int) -> None:
        """A worker that is placed where its host still keeps its old share gets a new one for it."""
        if not isinstance(event, ev.JobPlaced):
            return
        for index, place in enumerate(event.places):
            key = f"{place.host}/{event.job_id}/{index}"
            known = self.shares.get(key)
            if known is not None and known.since is not None:
                self.of_host[known.host] += known.weight * max(at - known.since, 0)
                del self.shares[key]

    def _read_allocations(self, at: int) -> None:
        """Which shares are held after the event."""
        held: dict[str, tuple[str, int]] = {}
        for host in self.cluster.hosts.values():
            for place, allocation in host.allocations.items():
                key = f"{host.name}/{place}"
                job = self.cluster.jobs[_job(key)]
                held[key] = host.name, self._weight(job, int(key.rpartition("/")[2]), len(allocation.gpus))
        for key in [key for key in self.shares if key not in held]:
            share = self.shares.pop(key)
            if share.since is not None:
                self.of_host[share.host] += share.weight * max(at - share.since, 0)
        for key, (name, weight) in held.items():
            known = self.shares.get(key)
            if known is None or (known.since is None and known.weight != weight):
                self.clocks.setdefault(_job(key), at)
                self.shares[key] = Share(name, weight)

    def _weight(self, job: Job, index: int, gpus: int) -> int:
        members = job.gang.members
        if job.gang.gpus:
            return gpus
        return members[index].processes if index < len(members) else max(each.processes for each in members)

    def _leave(self, event: ev.Event) -> None:
        """A share that is not proven empty is its host's from the fence on, or from the end of its job."""
        match event:
            case ev.WorkerFenced(job_id=job_id, worker=worker, vouched=False):
                index = self.cluster.jobs[job_id].gang.index_by_name[worker]
                for key, share in self.shares.items():
                    if key.endswith(f"/{job_id}/{index}") and share.since is None:
                        share.since = self.clocks[job_id]
            case ev.JobEnded(job_id=job_id):
                for key, share in self.shares.items():
                    if _job(key) == job_id and share.since is None:
                        share.since = self.clocks[job_id]

    def _take_bookings(self) -> None:
        for usage, members in self.newest:
            self.check(usage.members == members, NAME, "what was booked has changed")
        self.newest = [(usage, dict(usage.members)) for usage in self.cluster.bookings.usage]
        for usage in self.cluster.bookings.usage:
            for key, ms in usage.ms.items():
                day, category, cause = key.split("|")
                self.check(ms > 0 and int(day) >= 0 and bool(cause), NAME, f"booked {key}: {ms} ms")
                Category(category)
                for seat in usage.members.values():
                    self.booked[seat.host] += seat.weight * ms
                    self.categories[category] += seat.weight * ms
        for statement in self.cluster.bookings.statements:
            self.statements[statement.job_id] = statement
        self.cluster.bookings.usage.clear()
        self.cluster.bookings.statements.clear()

    def _compare_restarted(self, job_id: str) -> None:
        """Snapshot and rest are the whole."""
        books, again = self.cluster.bookings, self.restarted.bookings
        same = (books.usage, books.statements) == (again.usage, again.statements)
        self.check(same, NAME, f"after a snapshot {again} is booked instead of {books}")
        self.restarted.bookings = Bookings()
        job, other = self.cluster.jobs.get(job_id), self.restarted.jobs.get(job_id)
        if job is not None and other is not None:
            self.check(job.ledger == other.ledger, NAME, f"after a snapshot {other.ledger} instead of {job.ledger}")
        self.events += 1
        if self.events % self.snapshot_every == 0:
            self.restarted = from_snapshot(self.restarted)

    def _compare(self, job_id: str) -> None:
        known = self.cluster.jobs.get(job_id)
        ledger = known.ledger if known is not None else None
        self.check(ledger is None or job_id not in self.statements, NAME, f"{job_id} is closed and still in memory")
        if ledger is None:
            found = self.statements.get(job_id)
            self.check(found is not None, NAME, f"{job_id} has no ledger and no statement")
            assert found is not None
            self.check(known is None or known.terminal, NAME, f"{job_id} was closed before its end")
            ledger = found.ledger
            self.check(not ledger.live and not ledger.gone, NAME, f"{job_id} was closed with open spans")
        total = sum(ledger.sums.values()) + sum(
            _open_ms(ledger, tape) for tape in (*ledger.live, *ledger.gone, *ledger.spares.values())
        )
        self.check(total == self.of_job[job_id], NAME, f"{job_id}: {total} ms of {self.of_job[job_id]} ms")
        self.check(all(ms >= 0 for ms in ledger.sums.values()), NAME, f"{job_id} has a negative sum")

    def _compare_hosts(self) -> None:
        found = Counter(self.booked)
        for job in self.cluster.jobs.values():
            if job.ledger is None:
                continue
            for tape in (*job.ledger.live, *job.ledger.gone, *job.ledger.spares.values()):
                ms = sum(
                    (span.end if span.end is not None else job.ledger.clock) - span.start for span in tape.spans
                )
                self.check(
                    tape.weight == sum(seat.weight for seat in tape.members.values()), NAME, f"{job.id}: weights"
                )
                for seat in tape.members.values():
                    found[seat.host] += ms * seat.weight
        for host in found.keys() | self.of_host.keys():
            problem = f"{host}: {found[host]} ms of {self.of_host[host]} ms"
            self.check(found[host] == self.of_host[host], NAME, problem)


def from_snapshot(cluster: Cluster) -> Cluster:
    """The state as a controller has it that starts from a snapshot of it."""
    kept = Cluster(epoch=cluster.epoch, sequence=cluster.sequence, gaps=cluster.gaps)
    for job in cluster.jobs.values():
        kept.jobs[job.id] = codec.load_entity("job", codec.dump_entity(job))
    for host in cluster.hosts.values():
        kept.hosts[host.name] = codec.load_entity("host", codec.dump_entity(host))
    kept.shares = codec.load_entity("shares", codec.dump_entity(cluster.shares))
    kept.people = codec.load_entity("people", codec.dump_entity(cluster.people))
    kept.draining = {host.name for host in kept.hosts.values() if host.draining}
    kept.requests = {(job.owner, job.request_id): job.id for job in kept.jobs.values() if job.request_id}
    kept.purged = cluster.purged
    recount(kept)
    return kept


def _job(key: str) -> str:
    return key.split("/")[1]


def _open_ms(ledger: JobLedger, tape: Tape) -> int:
    total, before = 0, None
    for span in tape.spans:
        end = span.end if span.end is not None else ledger.clock
        assert span.start < end or span.end is None, f"a span of {end - span.start} ms"
        assert before is None or before <= span.start, "spans overlap"
        total, before = total + end - span.start, end
    return total * tape.weight
