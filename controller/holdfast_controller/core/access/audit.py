"""Entries of the audit log, and how many of them one caller may have written.

Theory of operation. Calls are kept in three trails, so that no caller can push out entries of another kind: those of
admins, of other users and hosts, and of callers without a certificate. In each a caller has an allowance of entries,
one for refusals and one for other calls. What is beyond it is counted by caller, call and outcome, and summarised once
a minute: "37 more of these within 60 s"; so are keys that are typed into a terminal, but for the first. So whatever a
caller does, it is on record, and the log grows slowly.
"""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass, replace
from holdfast_controller.core.model.accounts.token_buckets import Buckets

SUMMARY_S = 60.0
KINDS_MOST = 8
"""Kinds of calls that are summarised apart for one caller; further ones are summarised together."""
COUNTED_MOST = 200
"""Summaries of a trail within a minute; callers beyond that are summarised together."""
OTHERS = "(others)"
TYPING = "JobService/WriteTerminal"
"""A call for each key: one of a caller for a job is written within a minute, and the others are summarised."""


class Trail(enum.Enum):
    """Parts of the audit log, by whose calls are in them."""

    ADMINS = "admins"
    USERS = "users"
    UNKNOWN = "unknown"
    """Callers without a certificate, known by their address only."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One call. ``time`` is wall-clock seconds; ``outcome`` is OK or the name of a gRPC status."""

    time: float
    who: str
    peer: str
    call: str
    target: str = ""
    outcome: str = "OK"
    message: str = ""
    unwritten: int = 0
    """Calls that the entry stands for, where it is a summary."""


@dataclass
class _Counted:
    last: Entry
    count: int = 0


@dataclass
class AuditLimits:
    """Allowances of the callers in one trail. Times are monotonic seconds."""

    trail: Trail
    _refused: Buckets = field(default_factory=lambda: Buckets(burst=20, per_s=0.05))
    _done: Buckets = field(init=False)
    _all_refused: Buckets = field(default_factory=lambda: Buckets(burst=500, per_s=0.5))
    _counted: dict[tuple[str, str, str], _Counted] = field(default_factory=dict)
    _kinds: dict[str, int] = field(default_factory=dict)
    _typed: dict[tuple[str, str], float] = field(default_factory=dict)
    """When a caller's typing into a job was written last."""
    _since: float = 0.0

    def __post_init__(self) -> None:
        # Admins run automation, and are trusted not to hide in it.
        self._done = Buckets(5_000, 1.0) if self.trail is Trail.ADMINS else Buckets(1_000, 0.1)

    def admit(self, entry: Entry, now: float, *, refused: bool, origin: str = "") -> bool:
        """Whether the entry is to be written; otherwise it is counted for a summary.

        ``origin`` is the network that its address belongs to, where one caller may have all of that.
        """
        party = entry.who or origin or entry.peer
        if refused:
            admitted = self._refused.spend(party, now) and self._all_refused.spend("", now)
        else:
            admitted = not self._goes_on_typing(party, entry, now) and self._done.spend(party, now)
        if not admitted:
            self._count(party, entry, now)
        return admitted

    def _goes_on_typing(self, party: str, entry: Entry, now: float) -> bool:
        if entry.call != TYPING:
            return False
        self._typed = {each: at for each, at in self._typed.items() if now - at < SUMMARY_S}
        return self._typed.setdefault((party, entry.target), now) != now

    def _count(self, party: str, entry: Entry, now: float) -> None:
        if not self._counted:
            self._since = now
        key = party, entry.call, entry.outcome
        if key not in self._counted:
            if len(self._counted) >= COUNTED_MOST:
                key = OTHERS, OTHERS, ""
            elif self._kinds.get(party, 0) >= KINDS_MOST:
                key = party, OTHERS, ""
            else:
                self._kinds[party] = self._kinds.get(party, 0) + 1
        counted = self._counted.setdefault(key, _Counted(entry))
        counted.last, counted.count = entry, counted.count + 1

    def summaries(self, now: float, *, at_once: bool = False) -> list[Entry]:
        """Summaries of what was counted for a minute, or so far; the counts begin again."""
        if not self._counted or (now - self._since < SUMMARY_S and not at_once):
            return []
        within_s = max(round(now - self._since), 1)
        made = [_summary(key, counted, within_s) for key, counted in self._counted.items()]
        self._counted.clear()
        self._kinds.clear()
        return made


def _summary(key: tuple[str, str, str], counted: _Counted, within_s: int) -> Entry:
    party, call, _ = key
    last, words = counted.last, f"{counted.count} more of these within {within_s} s"
    if call == OTHERS:
        last, words = replace(last, call=OTHERS, outcome=""), f"{counted.count} more calls within {within_s} s"
    if party == OTHERS:
        last = replace(last, who="", peer="")
    return replace(last, target="", message=words, unwritten=counted.count)
