"""Pictures of all hosts for those who watch them: one look at the hosts serves every watcher.

Each watcher of its own would look at every host whenever one has changed, and hundreds of watchers of a thousand
hosts would leave the event loop no time for anything else.
"""

from __future__ import annotations

import asyncio

from holdfast.v1 import host_pb2
from holdfast_controller.core.views.gpu_states import kept_hosts
from holdfast_controller.shell.calls.slices import TURNS
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.driver import Driver, now

WATCHED = "host", "cluster"
"""Pictures change with these: a reservation that is made, begins or ends is the cluster's."""


def watched(driver: Driver) -> asyncio.Event:
    """An event that is set when pictures may have changed; see ``Driver.watch``."""
    host, cluster = WATCHED
    return driver.watch(cluster, driver.watch(host))


class HostPictures:
    """Hosts as they were at the last look, in the order in which they changed."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._known: dict[str, tuple[int, bytes, host_pb2.Host]] = {}
        self._version = 0
        self._asked = self._looked = 0
        self._looking = asyncio.Lock()
        self._bell = watched(driver)

    async def since(self, version: int) -> tuple[list[host_pb2.Host], int]:
        """Hosts that have changed since a version, all by name since 0, and the version that this is."""
        self._asked += 1
        mine = self._asked
        async with self._looking:
            # A new watcher wants the hosts as they are now; the others, once for each time that they were woken.
            if self._bell.is_set() or (not version and self._looked < mine):
                asked = self._asked
                self._bell.clear()
                await self._look()
                self._looked = asked
            found = []
            for changed, _, picture in reversed(self._known.values()):
                if changed <= version:
                    break
                found.append(picture)
            return (found[::-1] if version else sorted(found, key=_name)), self._version

    async def _look(self) -> None:
        """Bring the pictures up to date; they are durable when this returns."""
        cluster, slices = self._driver.cluster, TURNS.begin()
        kept = kept_hosts(cluster, now())
        for name in self._known.keys() - cluster.hosts.keys():
            del self._known[name]
        for name in sorted(cluster.hosts):
            await slices.rest()
            host = cluster.hosts.get(name)
            if host is None:
                continue  # it was removed meanwhile
            picture = host_to_proto(cluster, host, kept)
            content = _content(picture)
            known = self._known.get(name)
            if known is None or known[1] != content:
                self._version += 1
                self._known.pop(name, None)
                self._known[name] = self._version, content, picture
        await self._driver.settled()


def _name(host: host_pb2.Host) -> str:
    return host.name


def _content(picture: host_pb2.Host) -> bytes:
    """All of a picture but when the host was heard last, which is no change."""
    kept = host_pb2.Host()
    kept.CopyFrom(picture)
    kept.ClearField("last_seen")
    return kept.SerializeToString(deterministic=True)
