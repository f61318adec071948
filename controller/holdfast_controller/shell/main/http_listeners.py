"""Listeners for HTTP, where the settings ask for them: JSON for programs, and the page for browsers.

A controller without either loads none of the packages that they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._security.server_tls import server_context
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.web.signed_in import SignedIn
from holdfast_controller.shell.web.web_service import WebService

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from holdfast_controller.shell.rest.listener import Listener


async def listen(config: ControllerConfig, services: dict[str, object], guard: Guard) -> Listener | None:
    """Serve ``services`` to callers with a certificate; None unless ``http_port`` is set. Raises ``ConfigError``."""
    if config.http_port is None:
        return None
    from holdfast_controller.shell.rest.calls import Calls
    from holdfast_controller.shell.rest.listener import ServedNames, listen
    from holdfast_controller.shell.rest.page_routes import page_routes
    from holdfast_controller.shell.rest.routes import application

    calls = Calls(services, guard)
    app = application(calls, ServedNames(config.tls), page_routes(calls))
    return await listen(app, config.host, config.http_port, server_context(config.tls))


async def listen_web(
    config: ControllerConfig, services: dict[str, object], guard: Guard, signed_in: SignedIn, browsers: WebService
) -> Listener | None:
    """Serve the page, and ``services`` to browsers that are signed in; None unless ``web.listen`` is set.

    Raises ``ConfigError``.
    """

    def relayed() -> ASGIApp:
        from holdfast_controller.shell.rest.calls import Calls
        from holdfast_controller.shell.web.application import page
        from holdfast_controller.shell.web.browsers import WithHeaders

        return WithHeaders(page(Calls(services, guard)))

    browsers.relayed = relayed
    if not config.web.listen:
        return None
    from holdfast_controller.shell.rest.calls import Calls
    from holdfast_controller.shell.web.page_listener import listen

    listener, browsers.reached_at = await listen(config, Calls(services, guard), signed_in)
    return listener
