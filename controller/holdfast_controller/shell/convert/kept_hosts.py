"""Hosts as they are shown, made again only once that has changed: the picture of each, and its part in counts of all.

To look whether a host is as it was takes a fiftieth of making its message, and of a thousand in a list few have
changed. Both come from the host's own fields, of which each change is noted, from whether it is heard and takes work,
and from the jobs that have shares of it, which change by events alone.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast._base.dataclass import dataclass
from holdfast.v1 import host_pb2
from holdfast_controller.core.lifecycle.other_hosts import takes_work
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host, job_of
from holdfast_controller.core.views.gpu_states import is_unreconciled
from holdfast_controller.core.views.overview import HostCount, count_host
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.driver import Driver

_JOB = "job/"


@dataclass(eq=False)
class KeptHost:
    """A host as it was, with what was made of it since, which is not changed afterwards."""

    around: tuple[object, ...]
    jobs: frozenset[str]
    made: host_pb2.Host | None = None
    """Without the time at which it was heard."""
    count: HostCount | None = None
    text: tuple[str, str] | None = None
    """As it was printed: before and after that time."""
    size: int = 0

    @property
    def message(self) -> host_pb2.Host:
        """The picture, which ``KeptHosts.picture`` has made."""
        assert self.made is not None
        return self.made

    def ByteSize(self) -> int:  # a message's own
        """Bytes of the picture."""
        return self.size


@dataclass(frozen=True)
class Listed:
    """A page of hosts, each with the time at which it was heard last."""

    hosts: list[tuple[KeptHost, Wall]]
    next_page_token: str


class KeptHosts:
    """The newest state of each host that was shown or counted."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kept: dict[str, KeptHost] = {}
        self._position = 0

    def look(self) -> None:
        """Find out which jobs have changed; call it before hosts are listed or counted."""
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
        """The host as it is now, with its picture. ``kept``: ``gpu_states.kept_hosts``."""
        found = self._as_it_is(host, kept)
        if found.made is None:
            found.made = host_to_proto(self._driver.cluster, host, kept)
            found.made.ClearField("last_seen")
            found.size = found.made.ByteSize()
        return found

    def count(self, cluster: Cluster, host: Host, kept: Collection[str]) -> HostCount:
        """Returns what ``count_host`` does."""
        found = self._as_it_is(host, kept)
        if found.count is None:
            found.count = count_host(cluster, host, kept)
        return found.count

    def _as_it_is(self, host: Host, kept: Collection[str]) -> KeptHost:
        cluster, name = self._driver.cluster, host.name
        presence = cluster.presence_of(name)
        around = (
            cluster.host_changes[name],
            presence.liveness,
            presence.lost_at,
            name in kept,
            takes_work(cluster, host),
            is_unreconciled(cluster, host),
            cluster.spares.get(name),
            cluster.machine_types,
        )
        found = self._kept.get(name)
        if found is None or found.around != around or host.throttled:
            found = self._kept[name] = KeptHost(around, frozenset(map(job_of, host.allocations)))
        return found
