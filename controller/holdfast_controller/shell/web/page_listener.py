"""The page's listener: its address, the certificate that browsers are shown, and the names in it."""

from __future__ import annotations

from starlette.types import ASGIApp

from holdfast._security.server_tls import server_context
from holdfast._security.tls import TlsFiles
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.rest import listener
from holdfast_controller.shell.rest.listener import Listener, ServedNames
from holdfast_controller.shell.web.application import MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE


async def listen(config: ControllerConfig, app: ASGIApp) -> Listener:
    """Serve ``app`` at ``web.listen`` to browsers, none of which has a certificate. Raises ``ConfigError``."""
    host, _, port = config.web.listen.rpartition(":")
    return await listener.listen(
        app,
        host.removeprefix("[").removesuffix("]"),
        int(port),
        server_context(tls_files(config), anyone=True),
        key="web.listen",
        most=MAX_CONNECTIONS,
        most_of_one=MAX_CONNECTIONS_OF_ONE,
    )


def served_names(config: ControllerConfig) -> ServedNames:
    """The names in the certificate that browsers are shown. Raises ``ConfigError``."""
    return ServedNames(tls_files(config))


def reached_at(config: ControllerConfig, names: ServedNames) -> str:
    """The name by which browsers reach the page; empty for the controller's own certificate, which has all of them."""
    if config.web.cert is None:
        return ""
    plain = sorted((name for name in names() if "*" not in name), key=lambda name: (_is_address(name), name))
    return config.advertise if config.advertise in plain else next(iter(plain), "")


def _is_address(name: str) -> bool:
    return ":" in name or name.rpartition(".")[2].isdecimal()


def tls_files(config: ControllerConfig) -> TlsFiles:
    """The certificate that browsers are shown, and its key."""
    if config.web.cert is None or config.web.key is None:
        return config.tls
    return TlsFiles(config.ca, config.web.cert, config.web.key)
