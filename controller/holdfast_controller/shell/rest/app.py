"""The application: routes behind guards, and errors as JSON."""

from __future__ import annotations

from collections.abc import Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from holdfast.errors import HoldfastError
from holdfast_controller.shell.rest.calls import Aborted, Calls
from holdfast_controller.shell.rest.errors import Refusal, on_error
from holdfast_controller.shell.rest.guards import Bounds, Guards
from holdfast_controller.shell.rest.routes import routes


def application(calls: Calls, names: Collection[str]) -> Starlette:
    """The ASGI application. ``names`` are those by which callers may ask for us."""
    raised = (Aborted, HoldfastError, Refusal, HTTPException, Exception)
    app = Starlette(
        routes=routes(calls),
        middleware=[Middleware(Guards, names=names)],
        exception_handlers=dict.fromkeys(raised, on_error),
    )
    app.router.redirect_slashes = False
    app.state.bounds = Bounds()
    return app
