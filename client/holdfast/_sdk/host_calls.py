"""The SDK's calls about hosts: who is there, and the handling of them by admins."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import anyio

from holdfast._base.proto_values import duration, timestamp
from holdfast._sdk.reconnect import LinkCallback, Outage
from holdfast._sdk.transport import Calling, ended_early, fresh_id
from holdfast.errors import HoldfastError
from holdfast.v1 import host_pb2

if TYPE_CHECKING:
    from holdfast.v1 import host_pb2_grpc


def gpus_free(host: host_pb2.Host) -> int:
    """GPUs of a host that a job may have now."""
    return sum(_is_free(host, gpu) for gpu in host.inventory.gpus)


def partitions(host: host_pb2.Host) -> dict[str, tuple[int, int]]:
    """By MIG profile, such as ``1g.10gb``: how many instances of a host a job may have now, and of how many."""
    found: dict[str, tuple[int, int]] = {}
    for gpu in host.inventory.gpus:
        if profile := gpu.model.partition(" MIG ")[2].strip().lower():
            free, there = found.get(profile, (0, 0))
            found[profile] = free + _is_free(host, gpu), there + 1
    return dict(sorted(found.items()))


def _is_free(host: host_pb2.Host, gpu: host_pb2.Gpu) -> bool:
    if gpu.state:
        return gpu.state == host_pb2.GPU_STATE_FREE
    # A controller of an older release says this much of it.
    takes_work = host.state == host_pb2.HOST_STATE_READY and not (host.cordoned or host.going_down or host.refused)
    return takes_work and not (gpu.job_id or gpu.problem or gpu.faults)


class HostCalls(Calling):
    """A part of ``Client``."""

    _hosts: host_pb2_grpc.HostServiceAsyncStub

    async def list_hosts(self) -> list[host_pb2.Host]:
        """All hosts, by name."""
        pages = self._pages(self._hosts.ListHosts, host_pb2.ListHostsRequest())
        return [host async for page in pages for host in page.hosts]

    async def get_host(self, name: str) -> host_pb2.Host:
        """One host. Raises ``NotFound``."""
        request = host_pb2.GetHostRequest(name=name)
        return (await self._unary(self._hosts.GetHost, request)).host

    async def list_host_events(
        self, name: str, *, since: float | None = None, newest: int | None = None
    ) -> list[host_pb2.ListedHostEvent]:
        """The history of a host, oldest first: all ``since`` then (epoch seconds), or so many of the ``newest``."""
        request = host_pb2.ListHostEventsRequest(name=name)
        if since is not None:
            request.since.CopyFrom(timestamp(since))
        if newest is not None:
            request.newest, request.page_size = True, newest
            return list((await self._unary(self._hosts.ListHostEvents, request)).events)
        pages = self._pages(self._hosts.ListHostEvents, request)
        return [event async for page in pages for event in page.events]

    async def watch_hosts(self, *, on_link: LinkCallback | None = None) -> AsyncGenerator[host_pb2.Host]:
        """Every host at first, then each one whenever it changes; all of them again after an outage. Never ends."""
        outage = Outage(on_link)
        while True:
            try:
                call = self._hosts.WatchHosts(host_pb2.WatchHostsRequest())
                async with contextlib.aclosing(self._stream(call)) as changes:
                    async for change in changes:
                        outage.settled()
                        yield change.host
                await anyio.sleep(outage.failed(ended_early()))
            except HoldfastError as error:
                await self._wait(outage, error)

    async def cordon(
        self, name: str, reason: str = "", *, start: float | None = None, end: float | None = None
    ) -> host_pb2.Host:
        """The host takes no new work; what runs there continues. From ``start`` to ``end``, if set: epoch seconds."""
        request = host_pb2.CordonRequest(name=name, reason=reason, request_id=fresh_id())
        _set_window(request, start, end)
        return (await self._unary(self._hosts.Cordon, request)).host

    async def uncordon(self, name: str, gpus: Sequence[str] = (), *, repaired: bool = False) -> host_pb2.Host:
        """The host takes work again; with ``gpus``, by index or UUID, these are back in service and no more.

        ``repaired``: its failures are counted from now on.
        """
        request = host_pb2.UncordonRequest(name=name, gpus=gpus, repaired=repaired, request_id=fresh_id())
        return (await self._unary(self._hosts.Uncordon, request)).host

    async def drain(
        self,
        name: str,
        reason: str = "",
        *,
        deadline_s: float | None = None,
        at_checkpoint: bool = False,
        start: float | None = None,
        end: float | None = None,
    ) -> host_pb2.Host:
        """The host takes no new work, and what still runs there ``deadline_s`` from now is moved off.

        Without a deadline that is at once. With ``at_checkpoint`` a job is moved as soon as it has saved one.
        With ``start`` it begins then, with ``end`` the host takes work again then; both in epoch seconds.
        ``uncordon`` ends it.
        """
        request = host_pb2.DrainRequest(
            name=name, reason=reason, at_checkpoint=at_checkpoint, request_id=fresh_id()
        )
        if deadline_s is not None:
            request.deadline.CopyFrom(duration(deadline_s))
        _set_window(request, start, end)
        return (await self._unary(self._hosts.Drain, request)).host

    async def fence_host(self, name: str, reason: str = "") -> host_pb2.Host:
        """Vouch that the host is off, or that nothing of its work runs any more: the work is placed elsewhere.

        Where that is not so, two copies of a job run at once.
        """
        request = host_pb2.FenceHostRequest(name=name, reason=reason, request_id=fresh_id())
        return (await self._unary(self._hosts.FenceHost, request)).host

    async def check_host(self, name: str, *, at_once: bool = False) -> host_pb2.Host:
        """Have an active check measure the host as soon as it is idle, or with ``at_once`` now.

        Raises ``WrongState`` where it can't begin at once.
        """
        request = host_pb2.CheckHostRequest(name=name, at_once=at_once, request_id=fresh_id())
        return (await self._unary(self._hosts.CheckHost, request)).host

    async def cancel_maintenance(self, name: str) -> host_pb2.Host:
        """The host's planned maintenance does not take place, or ends now. Raises ``WrongState`` without any."""
        request = host_pb2.CancelMaintenanceRequest(name=name, request_id=fresh_id())
        return (await self._unary(self._hosts.CancelMaintenance, request)).host

    async def dismiss_work(self, name: str, job_id: str) -> host_pb2.Host:
        """Deprecated: the old name of ``stop_orphans``."""
        warnings.warn("dismiss_work is now stop_orphans", DeprecationWarning, stacklevel=2)
        return await self.stop_orphans(name, job_id)

    async def stop_orphans(self, name: str, job_id: str) -> host_pb2.Host:
        """Stop a job's workers on a host of which the controller has no record, as after a restore."""
        request = host_pb2.DismissWorkRequest(name=name, job_id=job_id, request_id=fresh_id())
        return (await self._unary(self._hosts.DismissWork, request)).host


def _set_window(
    request: host_pb2.CordonRequest | host_pb2.DrainRequest, start: float | None, end: float | None
) -> None:
    if start is not None:
        request.start.CopyFrom(timestamp(start))
    if end is not None:
        request.end.CopyFrom(timestamp(end))
