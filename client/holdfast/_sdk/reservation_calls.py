"""The SDK's calls about hosts that are reserved for projects (``client.reservations``)."""

from __future__ import annotations

from typing import cast

import grpc

from holdfast._sdk.transport import Calling
from holdfast.settings import ClientSettings
from holdfast.v1 import cluster_pb2, cluster_pb2_grpc


class ReservationCalls(Calling):
    """Raises ``HoldfastError`` as all calls of the client do. Admins make and delete them."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings) -> None:
        self.settings = settings
        self._stub = cast("cluster_pb2_grpc.ClusterServiceAsyncStub", cluster_pb2_grpc.ClusterServiceStub(channel))

    async def all(self) -> list[cluster_pb2.Reservation]:
        """All that aren't over, the next ones first."""
        request = cluster_pb2.ListReservationsRequest()
        return list((await self._unary(self._stub.ListReservations, request)).reservations)

    async def create(self, wanted: cluster_pb2.Reservation) -> cluster_pb2.Reservation:
        """Reserve hosts; the result says which they are at first, and what is missing."""
        request = cluster_pb2.CreateReservationRequest(reservation=wanted)
        return (await self._unary(self._stub.CreateReservation, request)).reservation

    async def delete(self, name: str) -> None:
        """End it at once. Raises ``NotFound``."""
        await self._unary(self._stub.DeleteReservation, cluster_pb2.DeleteReservationRequest(name=name))
