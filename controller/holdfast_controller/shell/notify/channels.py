"""The receivers of notifications: the cluster's channels, and the URLs that jobs may name."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import field

from holdfast._base.dataclass import dataclass
from holdfast._base.job_file.choices import NotificationEvent
from holdfast.errors import ConfigError, InvalidSpec, Violation
from holdfast.spec import JobSpec
from holdfast.spec.rules.notifications import parts, redacted
from holdfast.v1 import spec_pb2
from holdfast_controller.core.model.accounts.subscription import ClusterNotice, Subscription
from holdfast_controller.core.model.job import Job
from holdfast_controller.shell.base.config import ChannelConfig, ControllerConfig
from holdfast_controller.shell.notify.allowed_hosts import SETTING, AllowedHosts, wanted

CLUSTER_SINK = "cluster"
"""Kind of receivers of the cluster's notifications; a channel's queue for those is apart from that of jobs'."""
ALL = "ALL"
"""Stands for every event of the cluster."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Target:
    """A receiver's address. ``url`` may hold a secret; ``shown`` is the part that may be displayed."""

    url: str = field(repr=False)
    shown: str
    service: bool = False
    """Through apprise, in the form of the service that the URL names; otherwise a POST with JSON."""
    allowed: AllowedHosts | None = None
    """The addresses that the URL's host may resolve to; None: any, since an admin wrote the URL."""


class Channels:
    """Which receiver gets which notification. Holds URLs with secrets and displays none of them."""

    def __init__(self, channels: tuple[ChannelConfig, ...] = (), hosts: tuple[str, ...] = ()) -> None:
        """``hosts``: those that a job's URL may name. Raises ``ConfigError``."""
        self._allowed = AllowedHosts(hosts)
        self._targets: dict[str, Target] = {}
        self._events: dict[str, frozenset[NotificationEvent]] = {}
        self._cluster_events: dict[str, frozenset[ClusterNotice]] = {}
        for index, channel in enumerate(channels):
            self._add(channel, f"notifications[{index}] {channel.name!r}")

    @classmethod
    def of(cls, config: ControllerConfig) -> Channels:
        """Read the channels of controller.toml. Raises ``ConfigError``."""
        return cls(config.notifications, config.notification_hosts)

    def _add(self, channel: ChannelConfig, where: str) -> None:
        if not _NAME.fullmatch(channel.name):
            raise ConfigError(f"{where}: a name has letters, digits, dots, dashes and underscores.")
        if channel.name in self._targets:
            raise ConfigError(f"{where}: there are two of this name.")
        found = parts(channel.url)
        service = channel.service or found is None or found.scheme not in ("http", "https")
        if "://" not in channel.url:
            raise ConfigError(f"{where}: its url is none.", fix="Such as https://… or mailto://…")
        if service and importlib.util.find_spec("apprise") is None:
            raise ConfigError(f"{where}: this kind of url needs apprise.", fix="pip install 'holdfast[controller]'")
        if unknown := [name for name in channel.events if name not in NotificationEvent.__members__]:
            fix = f"Known: {', '.join(NotificationEvent.__members__)}."
            if unknown[0] in ClusterNotice.__members__:
                fix = "It is one of the cluster's: write it into cluster_events."
            raise ConfigError(f"{where}: no event is called {unknown[0]!r}.", fix=fix)
        of_cluster = frozenset(ClusterNotice) if ALL in channel.cluster_events else frozenset[ClusterNotice]()
        if unknown := [name for name in channel.cluster_events if name not in (ALL, *ClusterNotice.__members__)]:
            fix = f"Known: {', '.join((ALL, *ClusterNotice.__members__))}."
            raise ConfigError(f"{where}: no event of the cluster is called {unknown[0]!r}.", fix=fix)
        self._targets[channel.name] = Target(channel.url, channel.name, service)
        self._events[channel.name] = frozenset(NotificationEvent[name] for name in channel.events)
        named = (ClusterNotice[name] for name in channel.cluster_events if name != ALL)
        self._cluster_events[channel.name] = of_cluster.union(named)

    def check(self, spec: JobSpec) -> None:
        """Raises ``InvalidSpec`` for channels that don't exist and URLs on hosts that jobs may not name."""
        if wrong := list(self._wrong(spec)):
            raise InvalidSpec(wrong)

    def _wrong(self, spec: JobSpec) -> Iterator[Violation]:
        for index, one in enumerate(spec.notifications):
            path = f"jobSpec.notifications[{index}]"
            if one.channel and one.channel not in self._targets:
                known = ", ".join(sorted(self._targets))
                fix = (
                    f"channels: {known}" if known else "ask an admin for one: [[notifications]] in controller.toml"
                )
                yield Violation(f"{path}.channel", f"there is no channel {one.channel!r}", fix)
            elif one.url and not self._allowed.admits(one.url):
                host = wanted(one.url)
                fix = f'name a channel, or ask an admin to add "{host}" to {SETTING} in controller.toml'
                yield Violation(f"{path}.url", f"jobs may not have {host} called", fix)

    def listens(self, job: Job) -> bool:
        """Whether the job has any receiver at all."""
        return bool(job.gang.subscriptions) or any(self._events.values())

    def sinks(self, notice: NotificationEvent, job: Job) -> list[str]:
        """Receivers of ``notice``: ``channel:NAME`` or ``job:ID:INDEX``, each once."""
        found = [f"channel:{name}" for name, events in self._events.items() if notice in events]
        for index, one in enumerate(job.gang.subscriptions):
            if one.wants(notice):
                found.append(f"channel:{one.channel}" if one.channel else f"job:{job.id}:{index}")
        return list(dict.fromkeys(found))

    def cluster_sinks(self, kind: ClusterNotice) -> list[str]:
        """Receivers of a notification of the cluster: ``cluster:NAME``."""
        return [f"{CLUSTER_SINK}:{name}" for name, kinds in self._cluster_events.items() if kind in kinds]

    def target(self, sink: str, job: Job | None) -> Target | None:
        """The address of a sink; None if it was removed or is no longer allowed."""
        kind, _, rest = sink.partition(":")
        if kind in ("channel", CLUSTER_SINK):
            return self._targets.get(rest)
        index = int(rest.rpartition(":")[2])
        if job is None or index >= len(job.gang.subscriptions):
            return None
        url = job.gang.subscriptions[index].url
        return Target(url, redacted(url), allowed=self._allowed) if self._allowed.admits(url) else None


def subscriptions_of(spec: JobSpec) -> tuple[Subscription, ...]:
    """The subscriptions of a job's spec as the core's type."""
    return tuple(Subscription(one.channel, one.url, one.events) for one in spec.notifications)


def without_secrets(message: spec_pb2.CustomJobSpec) -> spec_pb2.CustomJobSpec:
    """The same message with each URL shortened to its host: ranks and readers get no more."""
    for one in message.notifications:
        if one.url:
            one.url = redacted(one.url)
    return message
