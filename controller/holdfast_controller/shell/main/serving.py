"""All that a controller is called by: gRPC, enrolment, HTTP and the page, and metrics."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.enrolment.port import Enrolling
from holdfast_controller.shell.services.metrics import Metrics

if TYPE_CHECKING:
    from holdfast_controller.shell.rest.listener import Listener


@dataclass
class Serving:
    """The servers of one controller that leads; listeners for HTTP follow once their modules are loaded."""

    grpc: grpc.aio.Server
    enrolling: Enrolling
    metrics: Metrics
    guard: Guard
    listeners: list[Listener] = field(default_factory=list)

    def also(self, listener: Listener | None) -> None:
        """Have a listener end with the others; None where the settings ask for none."""
        if listener is not None:
            self.listeners.append(listener)

    async def stop(self, grace_s: float) -> None:
        """Take no more calls; those that are being answered have some time. Streams have no end to wait for."""
        self.metrics.close()
        async with asyncio.TaskGroup() as endings:
            for listener in self.listeners:
                endings.create_task(listener.close(grace_s))
            endings.create_task(self.enrolling.stop())
            endings.create_task(self.grpc.stop(grace_s))
            # Once no disconnected caller could come back to this process.
            await asyncio.sleep(0)
            self.guard.end_streams()

    async def close(self) -> None:
        """End all calls at once."""
        self.metrics.close()
        for listener in self.listeners:
            await listener.close(0.0)
        await self.enrolling.stop()
        await self.grpc.stop(None)
