"""The standard health service, which tells the time as well: a doctor compares clocks with it."""

from __future__ import annotations

import time
from typing import Any

from grpc_health.v1 import health, health_pb2

from holdfast.doctor.reach import TIME_KEY


class Health(health.aio.HealthServicer):  # type: ignore[misc]
    """As gRPC's own."""

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse | None:
        """Whether the controller serves, and in the answer's metadata its wall clock in seconds."""
        await context.send_initial_metadata(((TIME_KEY, f"{time.time():.6f}"),))
        answer: health_pb2.HealthCheckResponse | None = await super().Check(request, context)
        return answer
