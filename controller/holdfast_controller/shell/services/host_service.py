"""``HostService``: lists hosts for users, and takes admins' commands about them."""

from __future__ import annotations

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
from holdfast_controller.shell.services.host_pictures import HostPictures


class HostService(host_pb2_grpc.HostServiceServicer):
    """Serves hosts as the model has them, once that is durable."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._pictures = HostPictures(driver)

    @unary
    async def ListHosts(self, request: host_pb2.ListHostsRequest, context: Context) -> host_pb2.ListHostsResponse:
        hosts = self._driver.cluster.hosts
        found, more = await paged(sorted(hosts), request, lambda name: self._picture(hosts.get(name)))
        await self._driver.settled()
        return host_pb2.ListHostsResponse(hosts=found, next_page_token=more)

    def _picture(self, host: Host | None) -> host_pb2.Host | None:
        return host_to_proto(self._driver.cluster, host) if host is not None else None

    @unary
    async def GetHost(self, request: host_pb2.GetHostRequest, context: Context) -> host_pb2.GetHostResponse:
        return host_pb2.GetHostResponse(host=await self._host(request.name))

    @streaming
    async def WatchHosts(
        self, request: host_pb2.WatchHostsRequest, context: Context
    ) -> AsyncGenerator[host_pb2.WatchHostsResponse, None]:
        bell = self._driver.watch("host")
        shown = 0
        try:
            while True:
                bell.clear()
                changed, shown = await self._pictures.since(shown)
                for host in changed:
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
