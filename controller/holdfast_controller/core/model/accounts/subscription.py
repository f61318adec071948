"""Kinds of notifications of a job, and the receivers that the job names for them."""

from __future__ import annotations

import enum
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import NotificationEvent


class ClusterNotice(enum.Enum):
    """Kinds of notifications about hosts and the whole cluster, the most urgent first; the names are the contract's."""

    HOSTS_SILENT = "HOSTS_SILENT"
    HOST_LOST = "HOST_LOST"
    GPU_FAULT = "GPU_FAULT"
    COMMON_CAUSE = "COMMON_CAUSE"
    CERTIFICATE = "CERTIFICATE"
    RESTORED = "RESTORED"
    ORPHAN_FOUND = "ORPHAN_FOUND"
    CHECK_FAILED = "CHECK_FAILED"
    HOST_CORDONED = "HOST_CORDONED"
    HOST_REFUSED = "HOST_REFUSED"
    HOST_THROTTLED = "HOST_THROTTLED"
    HOST_SHUTDOWN = "HOST_SHUTDOWN"
    HOST_RETURNED = "HOST_RETURNED"
    GPU_RECOVERED = "GPU_RECOVERED"
    CHECK_PASSED = "CHECK_PASSED"
    HOST_DRAINED = "HOST_DRAINED"


@dataclass(frozen=True)
class Subscription:
    """One receiver that a job names: a channel of the cluster or a URL, which may hold a secret."""

    channel: str = ""
    url: str = field(default="", repr=False)
    events: tuple[NotificationEvent, ...] = ()
    """All when empty."""

    def wants(self, notice: NotificationEvent) -> bool:
        """Whether the receiver wants this kind of notification."""
        return not self.events or notice in self.events
