"""Pictures of hosts that are made again only once what they show has changed.

To look whether a host is as it was takes a twentieth of making its message, and of a thousand in a list few have
changed. A picture comes from the host's own fields, from whether it is heard and takes work, and from the jobs that
have shares of it, which change by events alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from holdfast.v1 import host_pb2
from holdfast_controller.core.lifecycle.other_hosts import takes_work
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.hosts.host import Host, job_of
from holdfast_controller.core.views.gpu_states import is_unreconciled
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.driver import Driver

_CONTAINERS = dict, set, list
_JOB = "job/"


@dataclass(eq=False)
class KeptHost:
    """A host as it was when ``message`` was made, which is not changed afterwards."""

    fields: dict[str, Any]
    around: tuple[object, ...]
    jobs: frozenset[str]
    message: host_pb2.Host
    """Without the time at which it was heard."""
    text: tuple[str, str] | None = None
    """As it was printed: before and after that time."""


@dataclass(frozen=True)
class Listed:
    """A page of hosts, each with the time at which it was heard last."""

    hosts: list[tuple[KeptHost, Wall]]
    next_page_token: str


class KeptHosts:
    """The newest picture of each host."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kept: dict[str, KeptHost] = {}
        self._position = 0

    def look(self) -> None:
        """Find out which jobs have changed; call it before a list is made."""
        changes, cluster = self._driver.changes, self._driver.cluster
        found = changes.since(self._position)
        self._position = changes.newest
        if found is None or len(self._kept) > 2 * len(cluster.hosts):
            self._kept.clear()
            return
        changed = {entity.removeprefix(_JOB) for entity in found if entity.startswith(_JOB)}
        if changed:
            of_them = [name for name, kept in self._kept.items() if not kept.jobs.isdisjoint(changed)]
            for name in of_them:
                del self._kept[name]

    def picture(self, host: Host, kept: Collection[str]) -> KeptHost:
        """The host as it is now. ``kept``: ``gpu_states.kept_hosts``."""
        cluster = self._driver.cluster
        presence = cluster.presence_of(host.name)
        around = (
            presence.liveness,
            presence.lost_at,
            host.name in kept,
            takes_work(cluster, host),
            is_unreconciled(cluster, host),
            cluster.spares.get(host.name),
            cluster.machine_types,
        )
        found = self._kept.get(host.name)
        if found is None or found.fields != host.__dict__ or found.around != around or host.throttled:
            message = host_to_proto(cluster, host, kept)
            message.ClearField("last_seen")
            fields = {
                key: value.copy() if type(value) in _CONTAINERS else value for key, value in vars(host).items()
            }
            jobs = frozenset(map(job_of, host.allocations))
            found = self._kept[host.name] = KeptHost(fields, around, jobs, message)
        return found
