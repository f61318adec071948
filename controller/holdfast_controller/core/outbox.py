"""Notifications waiting to be delivered, per receiver: which is tried when, and when it is given up.

Theory of operation. Each receiver has its own queue and gets one notification at a time, in the order of events.
After a failure the queue pauses, twice as long each time, and the same notification is tried again; once it has
waited for ``retry_for_s``, a failure is final. Failing receivers share ``IN_TROUBLE`` of the ``AT_ONCE`` slots, so
that any number of dead ones cannot crowd out the rest. Where there is no room for an entry, the party that has most
there, a user or the cluster itself, gives way to others with its newest. Pure: ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import field

from holdfast._base.backoff import wait_s
from holdfast._base.dataclass import dataclass

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
AT_ONCE = 16
"""Deliveries in progress at once; at most ``IN_TROUBLE`` of them to receivers whose last delivery failed."""
IN_TROUBLE = 4
MAX_WAITING = 1_000
"""Entries waiting for one receiver."""
MAX_ENTRIES = 20_000
"""Entries waiting for all receivers together."""


@dataclass(frozen=True)
class OutboxEntry:
    """One notification for one receiver: ``body`` is the JSON sent, (sequence, sink) its identity.

    ``subject`` is the job's id, or for the cluster's notifications what they are about, such as ``host/gpu-07``.
    """

    sequence: int
    sink: str
    subject: str
    kind: str
    body: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Waiting:
    since: float
    entry: OutboxEntry
    party: str


@dataclass
class _Queue:
    waiting: deque[_Waiting] = field(default_factory=deque)
    not_before: float = 0.0
    failures: int = 0
    """Consecutive ones."""
    busy: bool = False


class Outbox:
    """The queues of all receivers."""

    def __init__(self, retry_for_s: float) -> None:
        self.retry_for_s = retry_for_s
        self._queues: dict[str, _Queue] = {}
        self._count = 0
        self._of: Counter[str] = Counter()
        """Entries by party."""

    def __len__(self) -> int:
        return self._count

    @property
    def failing(self) -> int:
        """Number of receivers with waiting entries whose last delivery failed."""
        return sum(queue.failures > 0 for queue in self._queues.values())

    def put(self, entry: OutboxEntry, now: float, party: str = "") -> list[OutboxEntry]:
        """Queue an entry of a party. Returns those that are given up for want of room: it, or another that gave way."""
        queue = self._queues.setdefault(entry.sink, _Queue())
        given_up: list[OutboxEntry] = []
        if len(queue.waiting) >= MAX_WAITING:
            given_up = self._give_way(party, Counter(one.party for one in queue.waiting), [queue])
        elif len(self) >= MAX_ENTRIES:
            given_up = self._give_way(party, self._of, self._queues.values())
        else:
            self._queue(queue, _Waiting(now, entry, party))
            return []
        if not given_up:
            self._forget_if_empty(entry.sink)
            return [entry]
        self._queue(self._queues.setdefault(entry.sink, _Queue()), _Waiting(now, entry, party))
        return given_up

    def _queue(self, queue: _Queue, one: _Waiting) -> None:
        queue.waiting.append(one)
        self._count += 1
        self._of[one.party] += 1

    def _give_way(self, party: str, counts: Mapping[str, int], queues: Iterable[_Queue]) -> list[OutboxEntry]:
        """Take out the newest entry of the party that has most, where that is still more than ``party`` has then."""
        most = max(counts, key=lambda one: (counts[one], one))
        if counts[most] <= counts.get(party, 0) + 1:
            return []
        places = [
            (one.since, one.entry.sequence, queue, at)
            for queue in queues
            for at, one in enumerate(queue.waiting)
            if one.party == most and not (at == 0 and queue.busy)
        ]
        if not places:
            return []
        *_, queue, at = max(places, key=lambda place: place[:2])
        return [self._take_out(queue, at)]

    def take(self, now: float) -> list[OutboxEntry]:
        """Entries to deliver now; answer each with ``delivered`` or ``failed``."""
        busy = [queue for queue in self._queues.values() if queue.busy]
        slots, troubled = AT_ONCE - len(busy), IN_TROUBLE - sum(queue.failures > 0 for queue in busy)
        # Longest waiting first.
        ready = [
            queue for queue in self._queues.values() if queue.waiting and not queue.busy and queue.not_before <= now
        ]
        taken = []
        for queue in sorted(ready, key=lambda queue: (queue.not_before, queue.waiting[0].since)):
            if slots == 0:
                break
            if queue.failures:
                if troubled == 0:
                    continue
                troubled -= 1
            slots -= 1
            queue.busy = True
            taken.append(queue.waiting[0].entry)
        return taken

    def delivered(self, entry: OutboxEntry) -> None:
        """Record that the receiver accepted ``entry``."""
        queue = self._queues[entry.sink]
        queue.busy, queue.failures, queue.not_before = False, 0, 0.0
        self._take_out(queue, 0)

    def failed(self, entry: OutboxEntry, now: float, *, for_good: bool = False) -> list[OutboxEntry]:
        """Record a failure; return the receiver's entries given up now. ``for_good``: it can never be reached."""
        queue = self._queues[entry.sink]
        queue.busy = False
        queue.failures += 1
        queue.not_before = now + wait_s(queue.failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        given_up = []
        while queue.waiting and (for_good or now - queue.waiting[0].since >= self.retry_for_s):
            given_up.append(self._take_out(queue, 0))
        return given_up

    def next_due(self, now: float) -> float | None:
        """When ``take`` may next return something with no other call in between; None: never by time alone."""
        due = [queue.not_before for queue in self._queues.values() if queue.waiting and not queue.busy]
        return min((time for time in due if time > now), default=None)

    def _take_out(self, queue: _Queue, at: int) -> OutboxEntry:
        one = queue.waiting[at]
        del queue.waiting[at]
        self._count -= 1
        self._of[one.party] -= 1
        if not self._of[one.party]:
            del self._of[one.party]
        self._forget_if_empty(one.entry.sink)
        return one.entry

    def _forget_if_empty(self, sink: str) -> None:
        """Forget past failures once nothing waits for the receiver."""
        if not self._queues[sink].waiting:
            del self._queues[sink]
