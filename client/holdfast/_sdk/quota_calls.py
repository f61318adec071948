"""The SDK's calls about quotas (``client.quotas``)."""

from __future__ import annotations

from typing import cast

import grpc

from holdfast._sdk.transport import Calling
from holdfast.settings import ClientSettings
from holdfast.v1 import cluster_pb2, cluster_pb2_grpc


class QuotaCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast("cluster_pb2_grpc.ClusterServiceAsyncStub", cluster_pb2_grpc.ClusterServiceStub(channel))

    async def all(self) -> list[cluster_pb2.Quota]:
        """The quotas of projects, then of users, as far as the caller may see them."""
        return list((await self._unary(self._stub.ListQuotas, cluster_pb2.ListQuotasRequest())).quotas)

    async def set(
        self,
        *,
        project: str | None = None,
        user: str | None = None,
        limits: cluster_pb2.QuotaLimits | None = None,
        clear: bool = False,
    ) -> cluster_pb2.Quota:
        """Set limits of a project or a user, or ``clear`` those that were set before. For admins."""
        request = cluster_pb2.SetQuotaRequest(limits=limits, clear=clear)
        if user is not None:
            request.user = user
        elif project is not None:
            request.project = project
        return (await self._unary(self._stub.SetQuota, request)).quota
