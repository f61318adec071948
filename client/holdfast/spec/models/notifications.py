"""Notifications of a job: their receivers, and the events they are sent for."""

from __future__ import annotations

import enum
from typing import Annotated

from pydantic import Field

from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Choice, Many, Text


class NotificationEvent(enum.Enum):
    """Events of a job that receivers can be notified of. Values are the names in the contract."""

    STARTED = "NOTIFICATION_EVENT_STARTED"
    COMPLETED = "NOTIFICATION_EVENT_COMPLETED"
    FAILED = "NOTIFICATION_EVENT_FAILED"
    CANCELLED = "NOTIFICATION_EVENT_CANCELLED"
    EXPIRED = "NOTIFICATION_EVENT_EXPIRED"
    RESTARTED = "NOTIFICATION_EVENT_RESTARTED"
    RECOVERED = "NOTIFICATION_EVENT_RECOVERED"
    HANGED = "NOTIFICATION_EVENT_HANGED"
    PREEMPTED = "NOTIFICATION_EVENT_PREEMPTED"
    DRAINED = "NOTIFICATION_EVENT_DRAINED"
    MAINTENANCE = "NOTIFICATION_EVENT_MAINTENANCE"
    UNSURE = "NOTIFICATION_EVENT_UNSURE"
    UNDERUSED = "NOTIFICATION_EVENT_UNDERUSED"
    STRAGGLER = "NOTIFICATION_EVENT_STRAGGLER"


class Notification(Model):
    """One receiver of news of a job: a channel of the cluster, or a URL."""

    channel: Annotated[str, Text(max_chars=63)] = ""
    """A channel that the cluster's admin has named in controller.toml."""
    url: Annotated[str, Text(max_chars=2048)] = Field(default="", repr=False)
    """Gets a POST with JSON; http or https, on a host that the cluster allows. Shown without all that follows the
    host."""
    events: Annotated[
        tuple[Annotated[NotificationEvent, Choice(NotificationEvent, "NOTIFICATION_EVENT_", None)], ...],
        Many(0, len(NotificationEvent)),
    ] = ()
    """Events to send; all of them when empty."""


Notifications = Annotated[tuple[Notification, ...], Many(0, 16)]
