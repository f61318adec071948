"""``/health``, as a load balancer asks it, and the one answer of a controller that stands by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import Unavailable
from holdfast_controller.shell.rest.errors import answer
from holdfast_controller.shell.rest.guards import patient_send
from holdfast_controller.shell.rest.printed import Json

PATH = "/health"
CONFIRM_S = 1.0
"""A store that has not confirmed for so long that this controller leads is stuck, or away."""


class WithHealth:
    """Answers ``/health`` before any check of who asks, and by which name: 200 while this controller leads."""

    def __init__(self, app: ASGIApp, confirmed: Callable[[], Awaitable[None]]) -> None:
        """``confirmed`` returns once the store has confirmed that this controller leads."""
        self._app = app
        self._confirmed = confirmed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self._confirmed()
        except TimeoutError:
            said = answer(Unavailable("The controller's store does not answer.", fix="Try again in a moment."))
        else:
            said = Json({})
        await said(scope, receive, patient_send(scope, send))


class StandsBy:
    """Answers every request, ``/health`` too, with 503 and the machine that leads."""

    def __init__(self, leader: Callable[[], str]) -> None:
        """``leader`` gives the name of that machine."""
        self._leader = leader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = f"This controller stands by: the one on {self._leader()} leads."
        error = Unavailable(problem, fix="Ask that one, or try again in a moment.")
        await answer(error)(scope, receive, patient_send(scope, send))
