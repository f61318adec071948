"""Kinds of notifications of a job, and the receivers that the job names for them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Notice(enum.Enum):
    """A kind of news; the names are those of the contract."""

    STARTED = "STARTED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    RESTARTED = "RESTARTED"
    RECOVERED = "RECOVERED"
    HANGED = "HANGED"
    PREEMPTED = "PREEMPTED"
    DRAINED = "DRAINED"
    MAINTENANCE = "MAINTENANCE"
    UNSURE = "UNSURE"


@dataclass(frozen=True)
class Subscription:
    """One receiver that a job names: a channel of the cluster or a URL, which may hold a secret."""

    channel: str = ""
    url: str = field(default="", repr=False)
    events: tuple[Notice, ...] = ()
    """All when empty."""

    def wants(self, notice: Notice) -> bool:
        """Whether the receiver wants this kind of notification."""
        return not self.events or notice in self.events
