"""Deadlines of jobs, hosts and the cluster, on the monotonic clock."""

from __future__ import annotations

import enum
import heapq
import math
from dataclasses import dataclass, field

from holdfast_controller.core.model.clock import Mono


class JobTimer(enum.StrEnum):
    """A deadline of one job; its key holds the job's id."""

    TIMEOUT = "timeout"
    """The job has run for as long as its spec allows."""
    TIMEOUT_WARNING = "warn"
    """The warning signal before that is due."""
    END_GRACE = "end_grace"
    """The grace for other workers after the primary completed has expired."""
    HANG = "hang"
    """The next look for a hang is due."""
    SETTLE = "settle"
    """Ranks that may have caused a failure have had time to report it."""
    LAUNCH = "launch"
    """The back-off before a launch in place has expired."""
    RETRY = "retry"
    """The back-off before the next placement has expired."""
    PAUSE = "pause"
    """Ranks that were warned of a pause have had time to exit."""
    LEAVE = "leave"
    """Ranks that were warned of a preemption or of a host's shutdown have had time to exit."""
    LOAN = "loan"
    """A start out of turn has lasted long enough to be taken back, or a job's ``no_claim_before`` has come."""
    OVERDUE = "overdue"
    """A waiting job should have started some minutes ago, and loans give way to it from now on; or its start can't be
    projected, and longer jobs pass it from now on."""
    CLAIM = "claim"
    """Jobs that borrow what a waiting job's project is guaranteed have run for long enough to give way to it."""
    UNDERUSE = "underuse"
    """The next look for GPUs that the job doesn't use is due."""
    SLOWNESS = "slowness"
    """The next look at the job's pace is due."""
    EXPIRE = "expire"
    """The job has waited in the queue for as long as its spec allows."""


class HostTimer(enum.StrEnum):
    """A deadline of one host; its key holds the host's name."""

    LEASE = "host"
    """The host becomes suspect, or lost, unless it was heard from."""
    DRAIN = "drain"
    """Work that is still on a draining host is moved off."""
    DRAIN_WARNING = "drain_warn"
    """The warning signal before that is due for a job."""
    MAINTENANCE = "maintenance"
    """A maintenance window begins or ends, or its progress is checked."""


class UserTimer(enum.StrEnum):
    """A deadline of one user; its key holds the user's name."""

    SIGN_IN = "sign_in"
    """The newest sign-in by the identity provider ends."""


class ClusterTimer(enum.StrEnum):
    """A deadline of the whole cluster; its key holds the empty string."""

    RECONCILE = "cluster"
    """Hosts that joined after the restored backup have had time to connect."""
    RETENTION = "retention"
    """Jobs that were kept for long enough are looked for."""
    SCHEDULES = "schedules"
    """A run of a schedule may be due."""
    RESERVATIONS = "reservations"
    """A reservation of hosts is over."""
    MEASUREMENTS = "measurements"
    """Active checks of hosts may be due."""
    RETURNS = "returns"
    """Hosts have returned, or jobs have given back what they had kept, and the queue is yet to be looked at for it."""


Timer = JobTimer | HostTimer | UserTimer | ClusterTimer
TimerKey = tuple[Timer, str]
"""(kind, job id, or name of a host or user). Timers that are due at the same moment fire in the order of their keys."""


@dataclass
class Timers:
    """One deadline for each key, in seconds on the monotonic clock; setting it again replaces it.

    To put a deadline off costs nothing until the one of before would have come: hosts' are put off at each heartbeat.
    """

    due: dict[TimerKey, Mono] = field(default_factory=dict)
    _heap: list[tuple[Mono, TimerKey]] = field(default_factory=list)
    _first_entry: dict[TimerKey, Mono] = field(default_factory=dict)
    """Of each key in the heap: its first entry, at its deadline or before it. Others of it are left over."""

    def set(self, key: TimerKey, at: Mono) -> None:
        """Arm ``key`` for ``at``."""
        self.due[key] = at
        if self._first_entry.get(key, math.inf) > at:
            self._first_entry[key] = at
            heapq.heappush(self._heap, (at, key))

    def clear(self, key: TimerKey) -> None:
        """Disarm the timer of ``key``."""
        self.due.pop(key, None)

    @property
    def earliest(self) -> float:
        """Before it nothing is due, and perhaps for longer; infinite if nothing can be."""
        return self._heap[0][0] if self._heap else math.inf

    def next_due(self) -> Mono | None:
        """The earliest deadline; None if no timer is armed."""
        while self._heap:
            at, key = self._heap[0]
            left_over = self._first_entry.get(key) != at
            due = None if left_over else self.due.get(key)
            if due == at:
                return at
            if due is not None:  # it was put off
                self._first_entry[key] = due
                heapq.heapreplace(self._heap, (due, key))
            else:
                heapq.heappop(self._heap)
                if not left_over:
                    del self._first_entry[key]
        return None

    def pop_due(self, now: Mono) -> list[TimerKey]:
        """Remove and return all keys that are due, earliest first."""
        keys = []
        while (first := self.next_due()) is not None and first <= now:
            key = heapq.heappop(self._heap)[1]
            del self.due[key], self._first_entry[key]
            keys.append(key)
        return keys
