"""The second port, where hosts and users get certificates: opened where the configuration asks for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import grpc

from holdfast._security import tls
from holdfast.errors import AddressUnavailable
from holdfast.v1 import enrolment_pb2_grpc
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.connection_bounds import ConnectionBounds
from holdfast_controller.shell.driver import Driver

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.authority import Authority
    from holdfast_controller.shell.enrolment.rotation import Rotation
    from holdfast_controller.shell.enrolment.service import Enrolment

_WILDCARDS = ("0.0.0.0", "[::]", "", "*")


class Enrolling:
    """The enrolment server and the CA of one controller; both only where they are configured."""

    def __init__(self, config: ControllerConfig, driver: Driver, guard: Guard, audit: Audit) -> None:
        self._config = config
        self._authority: Authority | None = None
        self._server: grpc.aio.Server | None = None
        self.service: Enrolment | None = None
        self.rotation: Rotation | None = None
        self._ports = (0, 0)
        if config.ca_directory is not None:
            # Only here: a controller without a CA needs no cryptography of its own.
            from holdfast_controller.shell.enrolment.authority import Authority

            self._authority = Authority(config.ca_directory, config.certificates, config.cluster, names_of(config))
        if self._authority is not None and config.enrolment_listen:
            from holdfast_controller.shell.enrolment import service
            from holdfast_controller.shell.enrolment.issued import IssuedCertificates
            from holdfast_controller.shell.enrolment.rotation import Rotation

            issued = IssuedCertificates(driver.store)
            provider = None
            if config.oidc.issuer:
                # Only here: most clusters have none.
                from holdfast_controller.shell.enrolment.id_tokens import Provider

                provider = Provider(config.oidc)
            self.service = service.Enrolment(
                driver, guard, audit, self._authority, issued, config.cluster, provider
            )
            self.rotation = Rotation(self._authority, issued, driver.cluster, config.admins, config.tls)
            self._server = grpc.aio.server(interceptors=(guard,), options=service.OPTIONS)
            enrolment_pb2_grpc.add_EnrolmentServiceServicer_to_server(self.service, self._server)

    def listen(self, main_port: int) -> None:
        """Bind the port. Raises ``ConfigError``."""
        if self._server is None or self.service is None:
            return
        from holdfast_controller.shell.enrolment import service

        config = self._config
        try:
            # Here all are silent: callers have no certificates.
            bounds = ConnectionBounds({}, service.MAX_CONNECTIONS)
            credentials = tls.server_credentials(config.tls, anyone=True, begun=bounds.begun)
            port = bounds.port = self._server.add_secure_port(config.enrolment_listen, credentials)
        except RuntimeError as error:
            problem = f"Cannot listen on {config.enrolment_listen} (enrolment_listen)."
            raise AddressUnavailable(problem, fix="Check that the address is ours and the port is free.") from error
        self._ports = main_port, port
        self._tell_addresses(self.service)

    def _tell_addresses(self, service: Enrolment) -> None:
        """Have lines for joining name where the controller is reached."""
        config, (main_port, port) = self._config, self._ports
        service.controller = f"{_reached_at(config, config.listen)}:{main_port}"
        service.address = f"{_reached_at(config, config.enrolment_listen)}:{port}"

    def change(self, config: ControllerConfig) -> Callable[[], Awaitable[object] | None]:
        """Prepare new names, lifetimes and admins; what is returned makes them count. Raises ``ConfigError``."""
        if self._authority is None:
            return lambda: None
        authority, names = self._authority, names_of(config)

        def count() -> Awaitable[object]:
            self._config = config
            authority.serves, authority.lifetimes = names, config.certificates
            if self.service is not None:
                self._tell_addresses(self.service)
            if self.rotation is not None:
                self.rotation.admins = frozenset(config.admins)
            return authority.look_at_own(config.tls)

        return count

    async def start(self) -> None:
        """Serve enrolment on its port, once the controller's certificate names what callers may ask for."""
        if self._authority is not None:
            await self._authority.look_at_own(self._config.tls)
        if self._server is not None:
            await self._server.start()

    async def stop(self) -> None:
        """End; asking twice does nothing."""
        if self._server is not None:
            await self._server.stop(None)

    async def run(self) -> None:
        """Keep the controller's own certificate fresh, where that can be done here."""
        if self._authority is None:
            await asyncio.Event().wait()
        else:
            await self._authority.keep_own(self._config.tls)


def names_of(config: ControllerConfig) -> frozenset[str]:
    """All names that the controller's certificate has to carry. Raises ``ConfigError``."""
    # Only here: a controller without a CA issues nothing.
    from holdfast._security import server_names

    listens = (config.listen, config.enrolment_listen)
    return server_names.served((_reached_at(config, config.listen), *config.names), listens)


def _reached_at(config: ControllerConfig, listen: str) -> str:
    """Under which name others reach what listens there."""
    host = listen.rpartition(":")[0]
    return config.advertise or (socket.getfqdn() if host in _WILDCARDS else host)
