"""Notifications of a job: their receivers, and the events they are sent for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast._base.job_file.choices import NotificationEvent
from holdfast.spec.models.base import Model
from holdfast.spec.models.scalars import Choice, Many, Text


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
