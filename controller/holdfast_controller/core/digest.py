"""Notifications of the cluster, gathered into digests so that no fault floods its receivers.

Theory of operation. A receiver gets one message for everything of ``SETTLE_S``: the loss of a rack is one mail. The
next message comes after ``SPACING_S`` at the earliest, and only once the last one was delivered or given up. A subject
(a host's connection, a host's GPUs) that was in a message is held back before it is in another one, each time twice as
long, and no longer once it was quiet for twice that time: a host that comes and goes all day is in a dozen messages.
Of a subject that waits, the first and the newest entry are kept and the rest are counted. Pure: ``now`` is monotonic
seconds. Nothing is remembered of messages sent before a restart, so one may be repeated.
"""

from __future__ import annotations

from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast_controller.core.outbox import OutboxEntry

SETTLE_S = 10.0
SPACING_S = 60.0
FIRST_HOLD_S, LONGEST_HOLD_S = 300.0, 6 * 3600.0
MAX_SUBJECTS = 20_000
"""Subjects remembered per receiver; beyond that, those sent longest ago are forgotten."""


@dataclass(frozen=True)
class Line:
    """One subject of a message: its newest entry, its first since the last message, and how many there were."""

    newest: OutboxEntry
    first: OutboxEntry
    changes: int


@dataclass(frozen=True)
class Batch:
    """A message for one receiver: a line for each subject, by the order of the newest entries."""

    sink: str
    lines: tuple[Line, ...]

    @property
    def entries(self) -> list[OutboxEntry]:
        """The stored entries that the message stands for, each once."""
        return list(dict.fromkeys(entry for line in self.lines for entry in (line.first, line.newest)))


@dataclass
class _Subject:
    waiting: Line | None = None
    since: float = 0.0
    """Arrival of the first waiting entry."""
    held_until: float = float("-inf")
    hold_s: float = 0.0
    sent_at: float = float("-inf")
    sent: tuple[str, str] | None = None
    """Kind and text as last sent."""
    text: str = ""
    """Text of the newest waiting entry."""


@dataclass
class _Receiver:
    subjects: dict[str, _Subject] = field(default_factory=dict)
    waiting: dict[str, _Subject] = field(default_factory=dict)
    """Those of ``subjects`` with an entry that waits."""
    not_before: float = float("-inf")
    outstanding: bool = False

    def due(self) -> float | None:
        """When its next message is due; None while nothing waits or the last one is not settled."""
        if self.outstanding or not self.waiting:
            return None
        first = min(max(subject.held_until, subject.since + SETTLE_S) for subject in self.waiting.values())
        return max(self.not_before, first)


class Digest:
    """Entries about the cluster that wait to be sent, by receiver and subject."""

    def __init__(self) -> None:
        self._receivers: dict[str, _Receiver] = {}

    def __len__(self) -> int:
        return sum(len(receiver.waiting) for receiver in self._receivers.values())

    def put(self, entry: OutboxEntry, text: str, now: float, *, answers: bool = False) -> list[OutboxEntry]:
        """Take in an entry that says ``text``; return entries that need not be kept any longer, perhaps this one.

        ``answers``: it matters only if its subject was reported before, such as the end of a fault.
        """
        receiver = self._receivers.setdefault(entry.sink, _Receiver())
        subject = receiver.subjects.get(entry.subject)
        if subject is None:
            if answers:
                return [entry]
            subject = receiver.subjects[entry.subject] = _Subject()
        waiting = subject.waiting
        if waiting is None:
            if subject.sent == (entry.kind, text):
                return [entry]
            subject.waiting, subject.since, subject.text = Line(entry, entry, 1), now, text
            receiver.waiting[entry.subject] = subject
            return []
        subject.waiting, subject.text = Line(entry, waiting.first, waiting.changes + 1), text
        return [waiting.newest] if waiting.newest != waiting.first else []

    def take(self, now: float) -> list[Batch]:
        """Messages to send now; call ``settled`` once each was delivered or given up."""
        batches = []
        for sink, receiver in self._receivers.items():
            due = receiver.due()
            if due is None or due > now:
                continue
            lines = []
            for name, subject in list(receiver.waiting.items()):
                if subject.waiting is None or subject.held_until > now:
                    continue
                lines.append(subject.waiting)
                del receiver.waiting[name]
                quiet = subject.since - subject.sent_at >= 2 * subject.hold_s
                subject.hold_s = FIRST_HOLD_S if quiet else min(2 * subject.hold_s, LONGEST_HOLD_S)
                subject.sent_at, subject.held_until = now, now + subject.hold_s
                subject.sent, subject.waiting = (subject.waiting.newest.kind, subject.text), None
            receiver.outstanding, receiver.not_before = True, now + SPACING_S
            _forget(receiver)
            lines.sort(key=lambda line: line.newest.sequence)
            batches.append(Batch(sink, tuple(lines)))
        return batches

    def settled(self, sink: str) -> None:
        """The receiver's last message was delivered or given up."""
        self._receivers[sink].outstanding = False

    def next_due(self) -> float | None:
        """When ``take`` next returns something with no other call in between; None: never by time alone."""
        return min((due for r in self._receivers.values() if (due := r.due()) is not None), default=None)


def _forget(receiver: _Receiver) -> None:
    if len(receiver.subjects) <= MAX_SUBJECTS:
        return
    idle = sorted((s.sent_at, name) for name, s in receiver.subjects.items() if s.waiting is None)
    for _, name in idle[: max(0, len(receiver.subjects) - MAX_SUBJECTS)]:
        del receiver.subjects[name]
