"""Listeners for HTTP, where the settings ask for them: JSON for programs, and the page for browsers.

A controller without either loads none of the packages that they need.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING

from holdfast._security.server_tls import server_context
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.web.signed_in import SignedIn
from holdfast_controller.shell.web.web_service import WebService

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from holdfast_controller.shell.rest.calls import Calls
    from holdfast_controller.shell.rest.listener import Listener


Confirmed = Callable[[], Awaitable[None]]
"""Returns once the store has confirmed that this controller leads."""


async def listen(
    config: ControllerConfig, services: dict[str, object], guard: Guard, confirmed: Confirmed
) -> Listener | None:
    """Serve ``services`` to callers with a certificate; None unless ``http_port`` is set. Raises ``ConfigError``."""
    if config.http_port is None:
        return None
    from holdfast_controller.shell.rest.calls import Calls
    from holdfast_controller.shell.rest.health import WithHealth
    from holdfast_controller.shell.rest.listener import ServedNames, listen
    from holdfast_controller.shell.rest.page_routes import page_routes
    from holdfast_controller.shell.rest.routes import application

    calls = Calls(services, guard)
    app = application(calls, ServedNames(config.tls), page_routes(calls))
    return await listen(WithHealth(app, confirmed), config.host, config.http_port, server_context(config.tls))


async def listen_web(
    config: ControllerConfig,
    services: dict[str, object],
    guard: Guard,
    signed_in: SignedIn,
    browsers: WebService,
    confirmed: Confirmed,
    position: Callable[[], tuple[int, Hashable]],
) -> Listener | None:
    """Serve the page, and ``services`` to browsers that are signed in; None unless ``web.listen`` is set.

    ``position`` gets what changes whenever an answer may. Raises ``ConfigError``.
    """

    @functools.cache
    def calls() -> Calls:
        from holdfast_controller.shell.rest.calls import Calls
        from holdfast_controller.shell.rest.shared_answers import SharedAnswers

        return Calls(services, guard, SharedAnswers(position))

    def relayed() -> ASGIApp:
        from holdfast_controller.shell.web.application import page
        from holdfast_controller.shell.web.browsers import WithHeaders

        return WithHeaders(page(calls()))

    browsers.relayed = relayed
    if not config.web.listen:
        browsers.opened.set()
        return None
    from holdfast_controller.shell.rest.health import WithHealth
    from holdfast_controller.shell.web.application import application
    from holdfast_controller.shell.web.page_listener import listen, reached_at, served_names

    names = served_names(config)
    app = application(calls(), signed_in, names)
    listener = await listen(config, WithHealth(app, confirmed))
    browsers.reached_at = lambda: (reached_at(config, names), listener.port)
    browsers.opened.set()
    return listener


async def listen_as_standby(
    config: ControllerConfig, leader: Callable[[], str], listeners: dict[str, Listener]
) -> None:
    """Say at each address of HTTP that the controller on ``leader`` leads. Raises ``ConfigError``.

    Each goes into ``listeners``, by its setting, as it is opened: those are to be closed whatever becomes of the rest.
    """
    if config.http_port is not None:
        from holdfast_controller.shell.rest.health import StandsBy
        from holdfast_controller.shell.rest.listener import listen

        context = server_context(config.tls)
        listeners["http_port"] = await listen(StandsBy(leader), config.host, config.http_port, context)
    if config.web.listen:
        from holdfast_controller.shell.rest.health import StandsBy
        from holdfast_controller.shell.web import page_listener

        listeners["web_port"] = await page_listener.listen(config, StandsBy(leader))
