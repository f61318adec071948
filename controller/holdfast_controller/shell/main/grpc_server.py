"""The gRPC server: every service, the bounds of its connections, its port."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, cast

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast._base.addresses import MIN_PING_MS, fixed_window, keepalive
from holdfast._security import tls
from holdfast.errors import AddressUnavailable
from holdfast.v1 import (
    access_pb2,
    access_pb2_grpc,
    agent_pb2,
    agent_pb2_grpc,
    bundle_pb2,
    bundle_pb2_grpc,
    cluster_pb2,
    cluster_pb2_grpc,
    hang_pb2,
    hang_pb2_grpc,
    host_pb2,
    host_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    schedule_pb2,
    schedule_pb2_grpc,
    secret_pb2,
    secret_pb2_grpc,
    web_pb2,
    web_pb2_grpc,
)
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles.bundle_store import BundleStore
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.bounds import MESSAGE_BYTES
from holdfast_controller.shell.calls.connection_bounds import ConnectionBounds
from holdfast_controller.shell.calls.receiving import UNREAD_BYTES
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.secrets.vault import Vault
from holdfast_controller.shell.services.access_service import AccessService
from holdfast_controller.shell.services.agent_service import AgentService
from holdfast_controller.shell.services.bundle_service import BundleService
from holdfast_controller.shell.services.cluster_service import ClusterService, Health
from holdfast_controller.shell.services.hang_service import HangService
from holdfast_controller.shell.services.host_pacing import HostPacing
from holdfast_controller.shell.services.host_service import HostService
from holdfast_controller.shell.services.job_service import JobService
from holdfast_controller.shell.services.schedule_service import ScheduleService
from holdfast_controller.shell.services.secret_service import SecretService
from holdfast_controller.shell.services.streams.transfers import Transfers
from holdfast_controller.shell.store.series.store import SeriesStore
from holdfast_controller.shell.web.web_service import WebService

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.service import Enrolment


SERVICES = (
    job_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
    hang_pb2.DESCRIPTOR.services_by_name["HangService"].full_name,
    host_pb2.DESCRIPTOR.services_by_name["HostService"].full_name,
    agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name,
    access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name,
    bundle_pb2.DESCRIPTOR.services_by_name["BundleService"].full_name,
    secret_pb2.DESCRIPTOR.services_by_name["SecretService"].full_name,
    schedule_pb2.DESCRIPTOR.services_by_name["ScheduleService"].full_name,
    cluster_pb2.DESCRIPTOR.services_by_name["ClusterService"].full_name,
    web_pb2.DESCRIPTOR.services_by_name["WebService"].full_name,
)
MAX_STREAMS = 1_024
"""Calls in progress on one connection; a client library lets further ones wait."""
HANDSHAKE_MS = 30_000
"""A connection whose handshake takes longer is closed: it may be held open to take a descriptor from others."""
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
    ("grpc.so_reuseport", 0),
    *keepalive(20_000, 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    *fixed_window(UNREAD_BYTES),
)
CONNECTIONS_SHARE = 0.5
"""Of the files that this process may open: a flood of connections leaves the store and the logs the others."""


class _ByName:
    """A server, to add services to whose calls find their handlers by name.

    Generated code registers each method besides. gRPC then holds a task for the next call of each of them, and looks at
    all of those, some eighty, whenever one has come.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Register none: each call is found by its name."""


def build(
    config: ControllerConfig,
    driver: Driver,
    transfers: Transfers,
    channels: Channels,
    guard: Guard,
    audit: Audit,
    enrolment: Enrolment | None,
    whole: ClusterService,
    vault: Vault,
    pacing: HostPacing,
    browsers: WebService,
    series: SeriesStore,
    bundles: BundleStore,
) -> tuple[grpc.aio.Server, health.aio.HealthServicer, JobService, dict[str, object]]:
    """The server with all its services; with it those that say it is well, serve jobs, and are called over HTTP."""
    options = (*OPTIONS, ("grpc.max_allowed_incoming_connections", _connections_most()))
    server = grpc.aio.server(interceptors=(guard,), options=options)
    services = cast("grpc.aio.Server", _ByName(server))
    jobs = JobService(
        driver,
        transfers,
        config.cluster,
        JobDefaults.of(config),
        channels,
        bundles,
        series,
    )
    hosts = HostService(driver, whole.hosts)
    job_pb2_grpc.add_JobServiceServicer_to_server(jobs, services)
    bundle_pb2_grpc.add_BundleServiceServicer_to_server(BundleService(driver, bundles), services)
    hangs = HangService(driver, transfers)
    hang_pb2_grpc.add_HangServiceServicer_to_server(hangs, services)
    host_pb2_grpc.add_HostServiceServicer_to_server(hosts, services)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(whole, services)
    agents = AgentService(driver, transfers, vault, pacing)
    agent_pb2_grpc.add_AgentServiceServicer_to_server(agents, services)
    secret_pb2_grpc.add_SecretServiceServicer_to_server(SecretService(driver, guard, vault), services)
    schedules = ScheduleService(driver, jobs, config.cluster)
    schedule_pb2_grpc.add_ScheduleServiceServicer_to_server(schedules, services)
    access = AccessService(driver, guard, audit, enrolment, config.cluster)
    access_pb2_grpc.add_AccessServiceServicer_to_server(access, services)
    web_pb2_grpc.add_WebServiceServicer_to_server(browsers, services)
    health_servicer = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, services)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    over_http = {
        "JobService": jobs,
        "HangService": hangs,
        "HostService": hosts,
        "ClusterService": whole,
        "AccessService": access,
        "ScheduleService": schedules,
        "WebService": browsers,
    }
    return server, health_servicer, jobs, {f"holdfast.v1.{name}": servicer for name, servicer in over_http.items()}


def _connections_most() -> int:
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * CONNECTIONS_SHARE)


def listen(server: grpc.aio.Server, config: ControllerConfig, guard: Guard) -> int:
    """Take the address that the settings name; its port. Raises ``AddressUnavailable``."""
    bounds = ConnectionBounds(guard.callers, _connections_most())
    try:
        credentials = tls.server_credentials(config.tls, begun=bounds.begun)
        port = bounds.port = server.add_secure_port(config.listen, credentials)
    except RuntimeError as error:
        raise AddressUnavailable(
            f"Cannot listen on {config.listen}.", fix="Check that the address is ours and the port is free."
        ) from error
    return port
