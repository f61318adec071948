"""``HostService``: lists hosts for users, and takes admins' commands about them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from typing import cast

from holdfast._base.printable import one_line
from holdfast._base.proto_values import seconds
from holdfast.errors import InvalidInput, NotFound, Violation
from holdfast.v1 import host_pb2, host_pb2_grpc
from holdfast_controller.core import events as ev
from holdfast_controller.core.model.clock import NEVER, Wall, named
from holdfast_controller.core.model.hosts.host import Host, Maintenance
from holdfast_controller.core.step.commands import (
    CordonAsked,
    DrainAsked,
    FenceAsked,
    HostCheckAsked,
    MaintenanceAsked,
    MaintenanceCancelled,
    StopOrphansAsked,
    UncordonAsked,
)
from holdfast_controller.core.views.gpu_states import kept_hosts
from holdfast_controller.shell.calls.rpc import Context, caller_name, once, streaming, unary
from holdfast_controller.shell.calls.slices import Page, paged
from holdfast_controller.shell.convert.host_event_to_proto import event_to_proto
from holdfast_controller.shell.convert.host_to_proto import host_to_proto
from holdfast_controller.shell.convert.job_to_proto import timestamp
from holdfast_controller.shell.convert.kept_hosts import KeptHost, KeptHosts, Listed
from holdfast_controller.shell.convert.measurements_to_proto import measurements_to_proto
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.services import reliability
from holdfast_controller.shell.services.host_pictures import WATCHED, HostPictures, watched
from holdfast_controller.shell.store import codec
from holdfast_controller.shell.store.records import Record

_PAGE, _PAGE_MOST = 100, 1_000
_BEYOND = 1 << 62
"""Beyond every sequence."""
ROUNDING_S = 1e-6
"""A time that was listed is found again, though a float does not hold its nanoseconds."""


class HostService(host_pb2_grpc.HostServiceServicer):
    """Serves hosts as the model has them, once that is durable."""

    def __init__(self, driver: Driver, kept: KeptHosts) -> None:
        self._driver = driver
        self._pictures = HostPictures(driver)
        self._kept = kept

    @unary
    async def ListHosts(self, request: host_pb2.ListHostsRequest, context: Context) -> host_pb2.ListHostsResponse:
        hosts, kept = self._driver.cluster.hosts, kept_hosts(self._driver.cluster, now())
        found, more = await paged(sorted(hosts), request, lambda name: self._picture(hosts.get(name), kept))
        await self._driver.settled()
        return host_pb2.ListHostsResponse(hosts=found, next_page_token=more)

    @unary
    async def ListHostsHere(self, request: host_pb2.ListHostsRequest, context: Context) -> Listed:
        """``ListHosts`` for who prints them: its pictures are this service's own."""
        cluster = self._driver.cluster
        kept, heard = kept_hosts(cluster, now()), cluster.presence_of
        found: list[tuple[KeptHost, Wall]] = []

        def picture(name: str) -> KeptHost | None:
            if (host := cluster.hosts.get(name)) is None:
                return None
            found.append((self._kept.picture(host, kept), heard(name).last_seen_wall))
            return found[-1][0]

        self._kept.look()
        listed, more = await paged(sorted(cluster.hosts), request, picture)
        await self._driver.settled()
        return Listed(found[: len(listed)], more)

    def _picture(self, host: Host | None, kept: Collection[str]) -> host_pb2.Host | None:
        return host_to_proto(self._driver.cluster, host, kept) if host is not None else None

    @unary
    async def GetHost(self, request: host_pb2.GetHostRequest, context: Context) -> host_pb2.GetHostResponse:
        picture = await self._host(request.name)
        found = (await reliability.of_hosts(self._driver)).get(request.name)
        if found is not None:
            picture.reliability.CopyFrom(reliability.to_proto(found))
        if (host := self._driver.cluster.hosts.get(request.name)) is not None:
            picture.measurements.CopyFrom(measurements_to_proto(self._driver.cluster, host))
        return host_pb2.GetHostResponse(host=picture)

    @unary
    async def ListHostEvents(
        self, request: host_pb2.ListHostEventsRequest, context: Context
    ) -> host_pb2.ListHostEventsResponse:
        self._find(request.name)
        await self._driver.settled()
        found, more = await self._history(request)
        events = found[::-1] if request.newest else found
        return host_pb2.ListHostEventsResponse(events=events, next_page_token=more)

    async def _history(self, request: host_pb2.ListHostEventsRequest) -> tuple[list[host_pb2.ListedHostEvent], str]:
        """A page of a host's history in the order in which it is read, and the token of the next one."""
        entity, since = f"host/{request.name}", seconds(request.since) - ROUNDING_S
        place, most = _place(request.page_token), min(request.page_size or _PAGE, _PAGE_MOST)
        found: list[host_pb2.ListedHostEvent] = []
        page = Page(most)
        while True:
            after, before = (0, place or _BEYOND) if request.newest else (place, None)
            records = await self._driver.history(entity, after, most + 1, since=since, before=before)
            if not records:
                return found, ""
            for record in records:
                listed = _listed(record)
                if not page.takes(listed):
                    return found, str(found[-1].cursor)
                found.append(listed)
            place = records[-1].sequence

    @streaming
    async def WatchHosts(
        self, request: host_pb2.WatchHostsRequest, context: Context
    ) -> AsyncGenerator[host_pb2.WatchHostsResponse, None]:
        bell = watched(self._driver)
        shown = 0
        try:
            while True:
                bell.clear()
                changed, shown = await self._pictures.since(shown)
                for host in changed:
                    yield host_pb2.WatchHostsResponse(host=host)
                await bell.wait()
        finally:
            for entity in WATCHED:
                self._driver.unwatch(entity, bell)

    @unary
    async def Cordon(self, request: host_pb2.CordonRequest, context: Context) -> host_pb2.CordonResponse:
        by = caller_name(context)
        start, end = _window(request)

        def command(token: int) -> CordonAsked | MaintenanceAsked:
            if start is None and end is None:
                return CordonAsked(token, by, request.name, one_line(request.reason))
            plan = Maintenance(start or NEVER, end, one_line(request.reason), by)
            return MaintenanceAsked(token, request.name, plan)

        name = await self._driver.ask(once(by, request, command))
        return host_pb2.CordonResponse(host=await self._host(name))

    @unary
    async def Uncordon(self, request: host_pb2.UncordonRequest, context: Context) -> host_pb2.UncordonResponse:
        by = caller_name(context)
        gpus = tuple(request.gpus)

        def command(token: int) -> UncordonAsked:
            return UncordonAsked(token, by, request.name, gpus, request.repaired)

        name = await self._driver.ask(once(by, request, command))
        return host_pb2.UncordonResponse(host=await self._host(name))

    @unary
    async def Drain(self, request: host_pb2.DrainRequest, context: Context) -> host_pb2.DrainResponse:
        by = caller_name(context)
        deadline_s = seconds(request.deadline) if request.HasField("deadline") else None
        if deadline_s is not None and deadline_s < 0:
            raise InvalidInput([Violation("deadline", "is negative", "write how long the work may go on")])

        start, end = _window(request)

        def command(token: int) -> DrainAsked | MaintenanceAsked:
            reason = one_line(request.reason)
            if start is None and end is None:
                return DrainAsked(token, by, request.name, reason, deadline_s, request.at_checkpoint)
            plan = Maintenance(start or NEVER, end, reason, by, True, deadline_s, request.at_checkpoint)
            return MaintenanceAsked(token, request.name, plan)

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
    async def CheckHost(self, request: host_pb2.CheckHostRequest, context: Context) -> host_pb2.CheckHostResponse:
        by = caller_name(context)
        name = await self._driver.ask(
            once(by, request, lambda token: HostCheckAsked(token, by, request.name, request.at_once))
        )
        return host_pb2.CheckHostResponse(host=await self._host(name))

    @unary
    async def CancelMaintenance(
        self, request: host_pb2.CancelMaintenanceRequest, context: Context
    ) -> host_pb2.CancelMaintenanceResponse:
        by = caller_name(context)
        name = await self._driver.ask(
            once(by, request, lambda token: MaintenanceCancelled(token, by, request.name))
        )
        return host_pb2.CancelMaintenanceResponse(host=await self._host(name))

    def _find(self, name: str) -> Host:
        host = self._driver.cluster.hosts.get(name)
        if host is None:
            raise NotFound(f"There is no host {name!r}.", fix="See: holdfast host list")
        return host

    async def _host(self, name: str) -> host_pb2.Host:
        cluster = self._driver.cluster
        picture = host_to_proto(cluster, self._find(name), kept_hosts(cluster, now()))
        await self._driver.settled()
        return picture


def _place(page_token: str) -> int:
    if page_token and not (page_token.isascii() and page_token.isdecimal() and len(page_token) < 19):
        raise InvalidInput([Violation("pageToken", f"{page_token!r} is not one of ours", "list again without")])
    return int(page_token or 0)


def _listed(record: Record) -> host_pb2.ListedHostEvent:
    event = codec.load_event(record.type, record.version, record.payload)
    return host_pb2.ListedHostEvent(
        cursor=record.sequence,
        time=timestamp(record.at),
        message=record.message,
        event=event_to_proto(cast("ev.HostEvent | ev.OrphanEvent", event)),
    )


def _window(request: host_pb2.CordonRequest | host_pb2.DrainRequest) -> tuple[Wall | None, Wall | None]:
    """Start and end of the maintenance window, where they are given."""
    start = named(seconds(request.start)) if request.HasField("start") else None
    end = Wall(seconds(request.end)) if request.HasField("end") else None
    return start, end
