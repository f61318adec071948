"""The page's listener: its address, the certificate that browsers are shown, and the names in it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.rest import listener
from holdfast_controller.shell.rest.calls import Calls
from holdfast_controller.shell.rest.listener import Listener, ServedNames
from holdfast_controller.shell.web.application import MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE, application
from holdfast_controller.shell.web.signed_in import SignedIn


async def listen(
    config: ControllerConfig, calls: Calls, signed_in: SignedIn
) -> tuple[Listener, Callable[[], tuple[str, int]]]:
    """Serve the page at ``web.listen``; returns the listener, and where browsers reach it as (name, port).

    The name is empty where the controller's own certificate is shown, which has all of its names. Raises
    ``ConfigError``.
    """
    files = tls_files(config)
    names = ServedNames(files)
    host, _, port = config.web.listen.rpartition(":")
    made = await listener.listen(
        application(calls, signed_in, names),
        host.removeprefix("[").removesuffix("]"),
        int(port),
        server_context(files, anyone=True),
        key="web.listen",
        most=MAX_CONNECTIONS,
        most_of_one=MAX_CONNECTIONS_OF_ONE,
    )

    def reached_at() -> tuple[str, int]:
        if config.web.cert is None:
            return "", made.port
        plain = sorted((name for name in names() if "*" not in name), key=lambda name: (_is_address(name), name))
        return config.advertise if config.advertise in plain else next(iter(plain), ""), made.port

    return made, reached_at


def _is_address(name: str) -> bool:
    return ":" in name or name.rpartition(".")[2].isdecimal()


def tls_files(config: ControllerConfig) -> TlsFiles:
    """The certificate that browsers are shown, and its key."""
    if config.web.cert is None or config.web.key is None:
        return config.tls
    return TlsFiles(config.ca, config.web.cert, config.web.key)
