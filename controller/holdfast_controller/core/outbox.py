"""Notifications waiting to be delivered, per receiver: which is tried when, and when it is given up.

Theory of operation. Each receiver has its own queue and gets one notification at a time, in the order of events.
After a failure the queue pauses, twice as long each time, and the same notification is tried again; once it has
waited for ``retry_for_s``, a failure is final. Failing receivers share ``IN_TROUBLE`` of the ``AT_ONCE`` slots, so
that any number of dead ones cannot crowd out the rest. Pure: ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast._base.backoff import wait_s

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
AT_ONCE = 16
"""Deliveries in progress at once; at most ``IN_TROUBLE`` of them to receivers whose last delivery failed."""
IN_TROUBLE = 4
MAX_WAITING = 1_000
"""Entries waiting for one receiver; further ones are refused."""
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


@dataclass
class _Queue:
    waiting: deque[tuple[float, OutboxEntry]] = field(default_factory=deque)
    """Each with its time of arrival."""
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

    def __len__(self) -> int:
        return self._count

    @property
    def failing(self) -> int:
        """Number of receivers with waiting entries whose last delivery failed."""
        return sum(queue.failures > 0 for queue in self._queues.values())

    def put(self, entry: OutboxEntry, now: float) -> bool:
        """Queue an entry; False if the receiver's queue or the whole outbox is full."""
        queue = self._queues.setdefault(entry.sink, _Queue())
        if len(queue.waiting) >= MAX_WAITING or self._count >= MAX_ENTRIES:
            return False
        queue.waiting.append((now, entry))
        self._count += 1
        return True

    def take(self, now: float) -> list[OutboxEntry]:
        """Entries to deliver now; answer each with ``delivered`` or ``failed``."""
        busy = [queue for queue in self._queues.values() if queue.busy]
        slots, troubled = AT_ONCE - len(busy), IN_TROUBLE - sum(queue.failures > 0 for queue in busy)
        # Longest waiting first.
        ready = [
            queue for queue in self._queues.values() if queue.waiting and not queue.busy and queue.not_before <= now
        ]
        taken = []
        for queue in sorted(ready, key=lambda queue: (queue.not_before, queue.waiting[0][0])):
            if slots == 0:
                break
            if queue.failures:
                if troubled == 0:
                    continue
                troubled -= 1
            slots -= 1
            queue.busy = True
            taken.append(queue.waiting[0][1])
        return taken

    def delivered(self, entry: OutboxEntry) -> None:
        """Record that the receiver accepted ``entry``."""
        queue = self._queues[entry.sink]
        queue.busy, queue.failures, queue.not_before = False, 0, 0.0
        self._drop_first(entry.sink, queue)

    def failed(self, entry: OutboxEntry, now: float, *, for_good: bool = False) -> list[OutboxEntry]:
        """Record a failure; return the receiver's entries given up now. ``for_good``: it can never be reached."""
        queue = self._queues[entry.sink]
        queue.busy = False
        queue.failures += 1
        queue.not_before = now + wait_s(queue.failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        given_up = []
        while queue.waiting and (for_good or now - queue.waiting[0][0] >= self.retry_for_s):
            given_up.append(queue.waiting[0][1])
            self._drop_first(entry.sink, queue)
        return given_up

    def next_due(self, now: float) -> float | None:
        """When ``take`` may next return something with no other call in between; None: never by time alone."""
        due = [queue.not_before for queue in self._queues.values() if queue.waiting and not queue.busy]
        return min((time for time in due if time > now), default=None)

    def _drop_first(self, sink: str, queue: _Queue) -> None:
        queue.waiting.popleft()
        self._count -= 1
        if not queue.waiting:
            # Forget past failures once nothing waits for the receiver.
            del self._queues[sink]
