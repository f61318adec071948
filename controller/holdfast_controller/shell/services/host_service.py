"""``HostService``: lists hosts for users, and takes admins' commands about them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from holdfast._base.printable import one_line
from holdfast._base.proto_time import seconds
from holdfast.errors import InvalidInput, NotFound, Violation
from holdfast.v1 import host_pb2, host_pb2_grpc
from holdfast_controller.core.model.clock import Wall
from holdfast_controller.core.model.host import Host
from holdfast_controller.core.step.commands import (
    CordonAsked,
    DrainAsked,
    FenceAsked,
    MaintenanceAsked,
    MaintenanceCancelled,
    StopOrphansAsked,
    UncordonAsked,
)
from holdfast_controller.shell.calls.rpc import Context, caller_name, once, streaming, unary
from holdfast_controller.shell.calls.slices import paged
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.driver import Driver

SHARED_S = 0.25
"""Watchers who look within the same span of so long get the same picture, unless something has happened between."""


def _content(host: host_pb2.Host) -> bytes:
    picture = host_pb2.Host()
    picture.CopyFrom(host)
    picture.ClearField("last_seen")
    return picture.SerializeToString(deterministic=True)


class HostService(host_pb2_grpc.HostServiceServicer):
    """Serves hosts as the model has them, once that is durable."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._drawn: tuple[tuple[int, float], list[tuple[host_pb2.Host, bytes]]] = ((-1, 0.0), [])

    @unary
    async def ListHosts(self, request: host_pb2.ListHostsRequest, context: Context) -> host_pb2.ListHostsResponse:
        hosts = self._driver.cluster.hosts
        found, more = await paged(sorted(hosts), request, lambda name: self._picture(hosts.get(name)))
        await self._driver.settled()
        return host_pb2.ListHostsResponse(hosts=found, next_page_token=more)

    def _picture(self, host: Host | None) -> host_pb2.Host | None:
        return host_to_proto(self._driver.cluster, host) if host is not None else None

    def _pictures(self) -> list[tuple[host_pb2.Host, bytes]]:
        """All hosts, each with its content but for when it was last heard.

        Drawn once for all watchers whom an event wakes: drawing a thousand hosts takes a tenth of a second.
        """
        key = self._driver.cluster.sequence, time.monotonic() // SHARED_S
        if self._drawn[0] != key:
            cluster = self._driver.cluster
            hosts = [host_to_proto(cluster, cluster.hosts[name]) for name in sorted(cluster.hosts)]
            self._drawn = key, [(host, _content(host)) for host in hosts]
        return self._drawn[1]

    @unary
    async def GetHost(self, request: host_pb2.GetHostRequest, context: Context) -> host_pb2.GetHostResponse:
        return host_pb2.GetHostResponse(host=await self._host(request.name))

    @streaming
    async def WatchHosts(
        self, request: host_pb2.WatchHostsRequest, context: Context
    ) -> AsyncGenerator[host_pb2.WatchHostsResponse, None]:
        bell = self._driver.watch("host")
        shown: dict[str, bytes] = {}
        try:
            while True:
                bell.clear()
                pictures = self._pictures()
                await self._driver.settled()
                for host, content in pictures:
                    if shown.get(host.name) != content:
                        shown[host.name] = content
                        yield host_pb2.WatchHostsResponse(host=host)
                await bell.wait()
        finally:
            self._driver.unwatch("host", bell)

    @unary
    async def Cordon(self, request: host_pb2.CordonRequest, context: Context) -> host_pb2.CordonResponse:
        by = caller_name(context)
        start, end = _window(request)

        def command(token: int) -> CordonAsked | MaintenanceAsked:
            if start is None and end is None:
                return CordonAsked(token, by, request.name, one_line(request.reason))
            return MaintenanceAsked(token, by, request.name, one_line(request.reason), start, end, drain=False)

        name = await self._driver.ask(once(by, request, command))
        return host_pb2.CordonResponse(host=await self._host(name))

    @unary
    async def Uncordon(self, request: host_pb2.UncordonRequest, context: Context) -> host_pb2.UncordonResponse:
        by = caller_name(context)
        gpus = tuple(request.gpus)
        name = await self._driver.ask(once(by, request, lambda token: UncordonAsked(token, by, request.name, gpus)))
        return host_pb2.UncordonResponse(host=await self._host(name))

    @unary
    async def Drain(self, request: host_pb2.DrainRequest, context: Context) -> host_pb2.DrainResponse:
        by = caller_name(context)
        deadline_s = seconds(request.deadline) if request.HasField("deadline") else None
        if deadline_s is not None and deadline_s < 0:
            raise InvalidInput([Violation("deadline", "is negative", "write how long the work may go on")])

        start, end = _window(request)

        def command(token: int) -> DrainAsked | MaintenanceAsked:
            what = (token, by, request.name, one_line(request.reason))
            if start is None and end is None:
                return DrainAsked(*what, deadline_s, request.at_checkpoint)
            return MaintenanceAsked(*what, start, end, True, deadline_s, request.at_checkpoint)

        name = await self._driver.ask(once(by, request, command))
        return host_pb2.DrainResponse(host=await self._host(name))

    @unary
    async def FenceHost(self, request: host_pb2.FenceHostRequest, context: Context) -> host_pb2.FenceHostResponse:
        by = caller_name(context)
        name = await self._driver.ask(
            once(by, request, lambda token: FenceAsked(token, by, request.name, one_line(request.reason)))
        )
        return host_pb2.FenceHostResponse(host=await self._host(name))

    @unary
    async def DismissWork(
        self, request: host_pb2.DismissWorkRequest, context: Context
    ) -> host_pb2.DismissWorkResponse:
        by = caller_name(context)
        name = await self._driver.ask(
            once(by, request, lambda token: StopOrphansAsked(token, by, request.name, request.job_id))
        )
        return host_pb2.DismissWorkResponse(host=await self._host(name))

    @unary
    async def CancelMaintenance(
        self, request: host_pb2.CancelMaintenanceRequest, context: Context
    ) -> host_pb2.CancelMaintenanceResponse:
        by = caller_name(context)
        name = await self._driver.ask(
            once(by, request, lambda token: MaintenanceCancelled(token, by, request.name))
        )
        return host_pb2.CancelMaintenanceResponse(host=await self._host(name))

    async def _host(self, name: str) -> host_pb2.Host:
        host = self._driver.cluster.hosts.get(name)
        if host is None:
            raise NotFound(f"There is no host {name!r}.", fix="See: holdfast host list")
        picture = host_to_proto(self._driver.cluster, host)
        await self._driver.settled()
        return picture


def _window(request: host_pb2.CordonRequest | host_pb2.DrainRequest) -> tuple[Wall | None, Wall | None]:
    """Start and end of the maintenance window, where they are given."""
    start = Wall(seconds(request.start)) if request.HasField("start") else None
    end = Wall(seconds(request.end)) if request.HasField("end") else None
    return start, end
