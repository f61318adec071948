"""The service of hosts, as tests of the client and of commands need it."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

from tests.integration.client.fake_services.history import History

from holdfast.v1 import host_pb2, host_pb2_grpc


class FakeHosts(History, host_pb2_grpc.HostServiceServicer):
    """Answers the calls that the client makes from the history."""

    async def ListHosts(self, request: host_pb2.ListHostsRequest, context: Any) -> host_pb2.ListHostsResponse:
        await self.called("ListHosts", request, context)
        return host_pb2.ListHostsResponse(hosts=list(self.hosts.values()))

    async def GetHost(self, request: host_pb2.GetHostRequest, context: Any) -> host_pb2.GetHostResponse:
        await self.called("GetHost", request, context)
        return host_pb2.GetHostResponse(host=await self.host(request.name, context))

    async def WatchHosts(
        self, request: host_pb2.WatchHostsRequest, context: Any
    ) -> AsyncIterator[host_pb2.WatchHostsResponse]:
        await self.called("WatchHosts", request, context)
        while True:
            changed = self.change
            for host in self.hosts.values():
                yield host_pb2.WatchHostsResponse(host=host)
            await changed.wait()

    async def Cordon(self, request: host_pb2.CordonRequest, context: Any) -> host_pb2.CordonResponse:
        await self.called("Cordon", request, context)
        host = await self.host(request.name, context)
        host.cordoned, host.cordon_reason = True, request.reason
        return host_pb2.CordonResponse(host=host)

    async def Uncordon(self, request: host_pb2.UncordonRequest, context: Any) -> host_pb2.UncordonResponse:
        await self.called("Uncordon", request, context)
        host = await self.host(request.name, context)
        host.cordoned, host.cordon_reason = False, ""
        return host_pb2.UncordonResponse(host=host)

    async def Drain(self, request: host_pb2.DrainRequest, context: Any) -> host_pb2.DrainResponse:
        await self.called("Drain", request, context)
        host = await self.host(request.name, context)
        host.cordoned = host.draining = True
        host.cordon_reason = request.reason
        if request.HasField("deadline"):
            host.drain_deadline.FromDatetime(datetime.datetime.now(datetime.UTC) + request.deadline.ToTimedelta())
        return host_pb2.DrainResponse(host=host)

    async def FenceHost(self, request: host_pb2.FenceHostRequest, context: Any) -> host_pb2.FenceHostResponse:
        await self.called("FenceHost", request, context)
        host = await self.host(request.name, context)
        host.ClearField("job_ids")
        host.workers = 0
        return host_pb2.FenceHostResponse(host=host)
