"""Letters that wait to be delivered, by receiver: who is tried when, and when it is given up.

Theory of operation: each receiver has a queue of its own and gets one letter at a time, in the order of events.
After a failure the queue rests, twice as long each time, and the same letter is tried again; once a letter has
waited for ``retry_for_s`` a failure is its last. A receiver that has failed competes only for the few places of
those in trouble, so that any number of dead ones leaves room for the living. Pure: ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 300.0
AT_ONCE = 16
"""Deliveries in progress, and of them at most ``IN_TROUBLE`` to receivers whose last one failed."""
IN_TROUBLE = 4
MAX_WAITING = 1_000
"""Letters for one receiver; what comes then is refused."""
MAX_LETTERS = 20_000
"""For all of them."""


@dataclass(frozen=True)
class Letter:
    """One piece of news for one receiver. ``body`` is what is sent, JSON; (sequence, sink) is its identity."""

    sequence: int
    sink: str
    job_id: str
    kind: str
    body: str = field(repr=False)


@dataclass
class _Box:
    waiting: deque[tuple[float, Letter]] = field(default_factory=deque)
    """With the time of arrival."""
    not_before: float = 0.0
    failures: int = 0
    """In a row."""
    busy: bool = False


class Mailboxes:
    """All receivers' queues."""

    def __init__(self, retry_for_s: float) -> None:
        self._retry_for_s = retry_for_s
        self._boxes: dict[str, _Box] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def failing(self) -> int:
        """Receivers with letters, the last delivery to whom has failed."""
        return sum(box.failures > 0 for box in self._boxes.values())

    def put(self, letter: Letter, now: float) -> bool:
        """Queue a letter; False when there is no room for it."""
        box = self._boxes.setdefault(letter.sink, _Box())
        if len(box.waiting) >= MAX_WAITING or self._count >= MAX_LETTERS:
            return False
        box.waiting.append((now, letter))
        self._count += 1
        return True

    def take(self, now: float) -> list[Letter]:
        """Letters to deliver now. Each is to be answered by ``delivered`` or ``failed``."""
        busy = [box for box in self._boxes.values() if box.busy]
        room, troubled = AT_ONCE - len(busy), IN_TROUBLE - sum(box.failures > 0 for box in busy)
        # Those who wait longest go first.
        ready = [box for box in self._boxes.values() if box.waiting and not box.busy and box.not_before <= now]
        taken = []
        for box in sorted(ready, key=lambda box: (box.not_before, box.waiting[0][0])):
            if room == 0:
                break
            if box.failures:
                if troubled == 0:
                    continue
                troubled -= 1
            room -= 1
            box.busy = True
            taken.append(box.waiting[0][1])
        return taken

    def delivered(self, letter: Letter) -> None:
        """It has arrived."""
        box = self._boxes[letter.sink]
        box.busy, box.failures, box.not_before = False, 0, 0.0
        self._drop_first(letter.sink, box)

    def failed(self, letter: Letter, now: float, *, for_good: bool = False) -> list[Letter]:
        """It has not. The letters of this receiver that are given up now; ``for_good``: it can never be reached."""
        box = self._boxes[letter.sink]
        box.busy = False
        box.not_before = now + min(FIRST_PAUSE_S * 2 ** min(box.failures, 30), LONGEST_PAUSE_S)
        box.failures += 1
        given_up = []
        while box.waiting and (for_good or now - box.waiting[0][0] >= self._retry_for_s):
            given_up.append(box.waiting[0][1])
            self._drop_first(letter.sink, box)
        return given_up

    def next_due(self, now: float) -> float | None:
        """When ``take`` may have something, if nothing is delivered or put before; None: not by time alone."""
        due = [box.not_before for box in self._boxes.values() if box.waiting and not box.busy]
        return min((time for time in due if time > now), default=None)

    def _drop_first(self, sink: str, box: _Box) -> None:
        box.waiting.popleft()
        self._count -= 1
        if not box.waiting:
            # A receiver that has failed is forgiven once nothing waits for it: few keep failing for ever.
            del self._boxes[sink]
