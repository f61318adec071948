"""The driver: feeds commands to the reactor, makes its events durable, then performs its actions.

``feed`` runs the reactor at once, in the caller's task; the writer task commits whatever has gathered since
its last commit and never waits for more. What is sent leaves only after the commit that holds its cause, or, where
there is nothing to write, confirms that no other controller has taken over. A commit that fails ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import assert_never

from holdfast._base.dataclass import dataclass
from holdfast._base.failpoints import hit
from holdfast._daemon import log
from holdfast.errors import Unavailable
from holdfast_controller.core.hangs.progress import wake_progress
from holdfast_controller.core.model.clock import Mono, Now, Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.goodput import ProgressWatch, Usage
from holdfast_controller.core.model.hang import KeptWatch
from holdfast_controller.core.reactor import Reactor
from holdfast_controller.core.step import actions as act
from holdfast_controller.core.step.commands import Input, StoodStill, TimePassed
from holdfast_controller.core.step.step import Decision, Policies
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.ended_jobs import named_in, read_beside
from holdfast_controller.shell.store.recent_changes import RecentChanges
from holdfast_controller.shell.store.records import Record
from holdfast_controller.shell.store.snapshots import AFTER_BURST_S, SnapshotPace, Stored, changed_entities
from holdfast_controller.shell.store.store import Store
from holdfast_controller.shell.store.stored_bytes import StoredBytes

MAX_PENDING = 10_000
"""Decisions that may wait for the disk; past that, calls are refused."""
MAX_UNCONFIRMED = 50_000
"""Answers to hosts that may wait for a confirmation; past that none is given, as by a controller that is away."""
CONFIRMS_A_BEAT, CONFIRM_WITHIN_S = 10, 0.5
"""Confirmations in one interval of hosts' heartbeats: each is a write to the disk, for all that wait for it."""

Outbox = Callable[[act.ToHost], None]


@dataclass(frozen=True)
class Observers:
    """Functions that the driver calls once their cause is durable. They must neither block nor raise."""

    published: Callable[[list[Record]], None] = lambda _: None
    """Gets the records of each commit."""
    committed: Callable[[Sequence[Decision], float], None] = lambda *_: None
    """Gets the decisions of each commit, and its duration in seconds."""
    take_evidence: Callable[[act.TakeEvidence], None] = lambda _: None
    """Has a worker dumped; the answer is fed as ``EvidenceArrived``."""
    call_fence: Callable[[act.CallFence], None] = lambda _: None
    """Has the site's fence command called; the answer is fed as ``FenceAsked`` or ``FenceFailed``."""
    access_changed: Callable[[str], None] = lambda _: None
    """Gets the party whose rights changed, such as ``user/ann``."""
    secret_kept: Callable[[act.KeepSecret], None] = lambda _: None
    """Gets each secret before its caller is answered."""


class Driver:
    """Runs one reactor over one store. Create it in the event loop that it is to run in."""

    def __init__(
        self, store: Store, cluster: Cluster, policies: Policies, stored: StoredBytes | None = None
    ) -> None:
        self.cluster = cluster
        self.store = store
        self.stored = stored or StoredBytes(cluster)
        self.stored.counted_from = store.sequence
        self.reactor = Reactor(cluster, policies)
        self._observers = Observers()
        self._late_s: Callable[[], float] = lambda: 0.0
        self._pending: list[tuple[Decision, list[Record]]] = []
        self._wake = asyncio.Event()
        self._unconfirmed: list[Callable[[], None]] = []
        self._confirms_at: asyncio.TimerHandle | None = None
        self._proof: asyncio.Event | None = None  # of the next commit: one for all, however many ask and give up
        self._tokens = itertools.count(1)
        self._callers: dict[int, asyncio.Future[str]] = {}
        self._outboxes: dict[tuple[str, int], Outbox] = {}
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._settling: list[list[tuple[int, Usage]]] = []
        self._settled = asyncio.Event()
        self._fed = 0
        self._performed = 0
        self._published = store.sequence
        self._broken: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        # What the log's tail changed is not in the snapshots either.
        self._dirty = {f"job/{job.id}" for job in cluster.jobs.heads() if job.cursor > store.snapshot_sequence}
        self._lets_go = True  # whether there may be ended jobs in memory that the snapshots contain
        self._pace = SnapshotPace(store.snapshot_sequence)
        self._loop = asyncio.get_running_loop()
        self.changes = RecentChanges(store.sequence)  # the newest part of the log, by what it is about
        self.quickest_s = math.inf  # of the commits since this was last set to infinity: the time of the quickest
        self.to_sweep = asyncio.Event()  # set when a job was deleted, of which the store still has something

    def start(
        self,
        kept: dict[str, KeptWatch] | None = None,
        observers: Observers | None = None,
        late_s: Callable[[], float] = lambda: 0.0,
        progress: dict[str, ProgressWatch] | None = None,
    ) -> None:
        """Give every lease a full term, resume the stored hang watches and progress, and arm the timers.

        Call it once, before the first ``feed`` and before ``run``. ``late_s`` says for how long the event loop has
        been held just now, before ``stood_still`` is called for it.
        """
        self._observers = observers or Observers()
        self._late_s = late_s
        self.reactor.resume(now(), kept)
        wake_progress(self.cluster, progress or {}, now())
        self._arm()

    def feed(self, incoming: Input) -> list[Record]:
        """Step the reactor with an input; its effects follow once they are durable.

        Returns what the input adds to the log. A step that fails leaves a state that is neither the old nor the
        new one, so it ends the process.
        """
        if self._broken is not None:
            raise Unavailable("The controller is about to end.", fix="Try again once it has been restarted.")
        # What comes first after a stall, a deadline say, may come before the watch of the loop has reported it.
        if (late_s := self._late_s()) >= self.reactor.policies.leases.heartbeat_s:
            self._step(StoodStill(late_s))
        records = self._step(incoming)
        self._arm()
        return records

    def stood_still(self, for_s: float) -> None:
        """Count no silence of hosts for the time in which nothing was read from them."""
        if self._broken is None and for_s >= self.reactor.policies.leases.heartbeat_s:
            self._step(StoodStill(for_s))
            self._arm()

    def _step(self, incoming: Input) -> list[Record]:
        try:
            decision = self.reactor.step(incoming, now())
            records = [codec.record(e.sequence, e.event, e.state, e.message) for e in decision.entries]
        except BaseException as error:
            self._broken = error
            self._wake.set()
            raise
        for meanwhile in self._settling:
            meanwhile += ((records[-1].sequence, usage) for usage in decision.bookings.usage)
        if decision.entries or decision.actions:
            self._pending.append((decision, records))
            self._fed += 1
            self._wake.set()
        return records

    async def ask(self, make: Callable[[int], Input]) -> str:
        """Feed a user's command and return its durable answer: the subject's name. Raises the core's refusals.

        Cancelling the wait does not undo the command.
        """
        if len(self._pending) >= MAX_PENDING:
            raise Unavailable("The controller's disk is too slow for the calls that wait.", fix="Try again later.")
        token = next(self._tokens)
        caller = self._callers[token] = self._loop.create_future()
        try:
            command = make(token)
            await self.bring(named_in(command))
            self.feed(command)
            subject: str = await caller
            return subject
        finally:
            self._callers.pop(token, None)

    async def bring(self, names: Iterable[str]) -> None:
        """Have these jobs whole in memory, where there are any, so that who needs them next reads no disk."""
        if (reading := read_beside(self.store, self.cluster.jobs, names)) is not None:
            await reading

    @property
    def pending(self) -> int:
        """Decisions that wait for the disk."""
        return len(self._pending)

    async def settled(self) -> None:
        """Wait until all that the state shows now is durable. Read first, then wait, then answer: so no answer
        holds what may yet be lost, and none waits for more than one or two commits.
        """
        seen = self._fed
        while self._performed < seen:
            await self._settled.wait()

    def when_confirmed(self, then: Callable[[], None], *, drops: bool = True) -> None:
        """Call ``then`` after a commit that begins after now and finds this controller still leading, if it does."""
        if not self._unconfirmed:
            soon_s = self.reactor.policies.leases.heartbeat_s / CONFIRMS_A_BEAT
            self._confirms_at = self._loop.call_later(min(soon_s, CONFIRM_WITHIN_S), self._wake.set)
        if len(self._unconfirmed) < MAX_UNCONFIRMED or not drops:
            self._unconfirmed.append(then)

    async def confirmed(self) -> None:
        """Wait for what ``when_confirmed`` waits for."""
        done = asyncio.Event()
        self.when_confirmed(done.set, drops=False)
        await done.wait()

    async def still_leading(self) -> None:
        """Wait for the same at once, if another controller may take over: what is read afterwards is the newest."""
        if self.store.engine.shared:
            if self._proof is None:
                self._proof = asyncio.Event()
                self._unconfirmed.append(self._proof.set)
                self._wake.set()
            await self._proof.wait()

    @contextlib.contextmanager
    def settling(self) -> Iterator[list[tuple[int, Usage]]]:
        """Gather the GPU time that is settled within the block, each with the sequence of its event."""
        meanwhile: list[tuple[int, Usage]] = []
        self._settling.append(meanwhile)
        try:
            yield meanwhile
        finally:
            self._settling = [other for other in self._settling if other is not meanwhile]

    async def evidence(self, job_id: str, hang: int) -> list[tuple[str, bytes]]:
        """(worker, content) of the stored evidence of one hang of a job."""
        return await asyncio.wrap_future(self.store.call(self.store.evidence, job_id, hang))

    async def attachments(self, job_id: str, hang: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The samples, and the dumps of flight recorders, that were kept with a hang of a job, by worker."""
        return await asyncio.wrap_future(self.store.call(self.store.attachments, job_id, hang))

    async def history(
        self, entity: str, after: int, limit: int, *, since: float = 0.0, before: int | None = None
    ) -> list[Record]:
        """Events of an entity; at most ``limit`` entries. See ``Store.read``."""
        read = self.store.call(self.store.read, entity, after, limit, since=since, before=before)
        return await asyncio.wrap_future(read)

    def register(self, host: str, session: int, outbox: Outbox) -> None:
        """Messages for this session go to ``outbox`` from now on."""
        self._outboxes[host, session] = outbox

    def unregister(self, host: str, session: int) -> None:
        """Send no more messages to the session's outbox."""
        self._outboxes.pop((host, session), None)

    def watch(self, entity: str, also: asyncio.Event | None = None) -> asyncio.Event:
        """An event, or ``also``: set, until ``unwatch``, when something durable happens to ``entity``; "": to any."""
        bell = also or asyncio.Event()
        self._watchers[entity].add(bell)
        return bell

    def unwatch(self, entity: str, bell: asyncio.Event) -> None:
        """Stop setting the event that ``watch`` returned."""
        self._watchers[entity].discard(bell)
        if not self._watchers[entity]:
            del self._watchers[entity]

    async def run(self) -> None:
        """Commit, publish and perform decisions until cancelled; pending ones are then lost or kept, as in a power
        cut."""
        while True:
            await self._wake.wait()
            if self._broken is not None:
                raise RuntimeError("a step failed; what is in memory can't be trusted") from self._broken
            self._wake.clear()
            taken, self._pending = self._pending, []
            confirming, self._unconfirmed, self._proof = self._unconfirmed, [], None
            if self._confirms_at is not None:
                self._confirms_at.cancel()  # else each commit that comes before it leads to one more
            batch = [decision for decision, _ in taken]
            records = [record for _, made in taken for record in made]
            self._dirty.update(record.entity for record in records)
            snapshot = self._due_snapshot(len(records))
            kept = [a for decision in batch for a in decision.actions if isinstance(a, act.Kept)]
            bookings = [decision.bookings for decision in batch if decision.bookings.some]
            if batch or confirming:
                began = time.perf_counter()
                await asyncio.wrap_future(self.store.call(self.store.commit, records, kept, bookings))
                took_s = time.perf_counter() - began
                self.quickest_s = min(self.quickest_s, took_s)
                if records or kept:
                    self._observers.committed(batch, took_s)
                    self.stored.on_committed(batch)
            for confirmed in confirming:
                confirmed()
            self._publish(records)
            for decision in batch:
                for action in decision.actions:
                    self._perform(action)
            self._performed += len(batch)
            settled, self._settled = self._settled, asyncio.Event()
            settled.set()
            if snapshot is not None:
                await asyncio.wrap_future(self.store.call(self.store.snapshot, *snapshot))
                self._lets_go = True
            if self._lets_go:
                self._lets_go = self.cluster.let_go(self.store.snapshot_sequence)

    def snapshot_soon(self) -> None:
        """Write a snapshot at the next opportunity, not only after so many events."""
        self._pace.soon()
        self._wake.set()

    def _publish(self, records: list[Record]) -> None:
        self._published = records[-1].sequence if records else self._published
        entities = {record.entity for record in records}
        for entity, run in groupby(records, lambda record: record.entity):  # thousands may be about one job
            alike = list(run)
            self.changes.extend([(alike[-1].sequence, entity)])
            # Jobs' events are in the store, thousands a second; those of hosts and users are few.
            level = log.DEBUG if entity.startswith("job/") else log.INFO
            for record in alike if log.writes(level) else ():
                log.write(level, "event.committed", type=record.type, entity=entity, message=record.message)
        for entity in entities | {entity.partition("/")[0] for entity in entities} | ({""} if entities else set()):
            for bell in self._watchers.get(entity, ()):
                bell.set()
        self.stored.on_published(records)
        self._observers.published(records)

    def _perform(self, action: act.Action) -> None:
        if isinstance(action, act.ToHost):  # most are, so they come first
            if (outbox := self._outboxes.get((action.host, action.session))) is not None:
                outbox(action)
            return
        match action:
            case act.Reply(token, subject):
                hit("controller.reply.before")
                if (caller := self._callers.get(token)) is not None and not caller.done():
                    caller.set_result(subject)
            case act.Refuse(token, error):
                if (caller := self._callers.get(token)) is not None and not caller.done():
                    caller.set_exception(error)
            case act.Note(event, fields):
                log.warning(event, **dict(fields))
            case act.KeepEvidence() | act.KeepWatch() | act.KeepProgress() | act.KeepAnswer():
                pass  # it is in the commit
            case act.ForgetJob():
                self.to_sweep.set()
            case act.KeepSecret():
                self._observers.secret_kept(action)
            case act.AccessChanged(party):
                self._observers.access_changed(party)
            case act.TakeEvidence():
                self._observers.take_evidence(action)
            case act.CallFence():
                self._observers.call_fence(action)
            case _:
                assert_never(action)

    def _arm(self) -> None:
        earliest = self.reactor.timers.earliest
        if self._timer is not None:
            if self._timer_due <= earliest:
                return
            self._timer.cancel()
            self._timer = None
        if earliest < math.inf:
            # Remembered here: for a time that has passed uvloop gives a handle that doesn't know it.
            self._timer_due = earliest
            self._timer = self._loop.call_at(earliest, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if (due := self.reactor.next_due()) is not None and due <= time.monotonic():
            self.feed(TimePassed(self.stored.full() if self.cluster.schedules else frozenset(), self._published))
        else:  # what would have been due was put off
            self._arm()

    def _due_snapshot(self, committing: int) -> tuple[int, Stored, Stored] | None:
        """Every entity that has changed since the last snapshot, once it is time for one.

        Asked for just after all that is pending was taken into a batch, of so many events: the state is then exactly
        what the log holds when that batch is committed, however busy the controller is.
        """
        sequence = self.cluster.sequence
        if not self._pace.is_due(sequence, len(self._dirty), committing):
            if self._pace.is_due(sequence, len(self._dirty), 0):
                self._loop.call_later(AFTER_BURST_S, self._wake.set)
            return None
        changed = changed_entities(self.cluster, self._dirty)
        self._pace.taken(sequence, sum(len(payload) for _, payload in changed[0]))
        self._dirty = set()
        return sequence, *changed


def now() -> Now:
    """The time now on both clocks. The monotonic one is the event loop's too, so timers and leases agree."""
    return Now(Mono(time.monotonic()), Wall(time.time()))
