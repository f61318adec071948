"""The daemon: open the store, serve gRPC over mutual TLS, run the driver, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast import tls
from holdfast.errors import ConfigError
from holdfast.hang.tuning import Action
from holdfast.sd_notify import Supervisor
from holdfast.v1 import (
    agent_pb2,
    agent_pb2_grpc,
    hang_pb2,
    hang_pb2_grpc,
    host_pb2,
    host_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
)
from holdfast_controller.core.leases import LeasePolicy
from holdfast_controller.core.model import Cluster
from holdfast_controller.core.steps import Policies
from holdfast_controller.shell.agent_service import AgentService
from holdfast_controller.shell.config import ControllerConfig
from holdfast_controller.shell.driver import Driver
from holdfast_controller.shell.examiner import Examiner
from holdfast_controller.shell.hang_service import HangService
from holdfast_controller.shell.host_service import HostService
from holdfast_controller.shell.job_service import JobService
from holdfast_controller.shell.store import Store
from holdfast_controller.shell.transfers import Transfers

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 4 << 20
STOP_GRACE_S = 1.0
SERVICES = (
    job_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
    hang_pb2.DESCRIPTOR.services_by_name["HangService"].full_name,
    host_pb2.DESCRIPTOR.services_by_name["HostService"].full_name,
    agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name,
)
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)


async def serve(config: ControllerConfig, on_ready: Callable[[int], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT. Raises ``StoreError`` or ``ConfigError`` when it can't start."""
    supervisor = Supervisor()
    store = Store(config.database)
    cluster = await asyncio.wrap_future(store.call(store.open))
    try:
        policies = Policies(
            leases=LeasePolicy(config.heartbeat_interval, config.suspect_after, config.lease, config.lost_after),
            secret_key=await asyncio.wrap_future(store.call(store.secret_key)),
            max_jobs=config.max_jobs,
            cluster_name=config.cluster,
            quotas=config.limits,
        )
        driver = Driver(store, cluster, policies)
        server, health_servicer = _server(config, driver)
        port = _listen(server, config)
        driver.start(await asyncio.wrap_future(store.call(store.kept_watches)))
        await server.start()
        for name in ("", *SERVICES):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "controller_ready",
            extra={"fields": {"port": port, "epoch": cluster.epoch, "jobs": len(cluster.jobs)}},
        )
        if on_ready is not None:
            on_ready(port)
        supervisor.tell(READY=1)
        await _run_until_told(driver, server, supervisor)
    finally:
        await asyncio.to_thread(store.close)


async def _run_until_told(driver: Driver, server: grpc.aio.Server, supervisor: Supervisor) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(driver.run())
            alive = tasks.create_task(supervisor.keep_telling(lambda: _status(driver.cluster)))
            await stop.wait()
            log.info("controller_stopping")
            supervisor.tell(STOPPING=1)
            await server.stop(STOP_GRACE_S)
            await driver.settled()
            writer.cancel()
            alive.cancel()
    finally:
        # Also when a commit has failed: nobody is served from a state that the disk doesn't hold.
        await server.stop(None)


def _status(cluster: Cluster) -> str:
    heard = sum(cluster.presence_of(name).session is not None for name in cluster.hosts)
    return f"{heard} of {len(cluster.hosts)} hosts connected, {len(cluster.queue)} jobs wait"


def _server(config: ControllerConfig, driver: Driver) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    server = grpc.aio.server(options=OPTIONS)
    transfers = Transfers()
    driver.take_evidence = Examiner(driver, transfers).take
    job_pb2_grpc.add_JobServiceServicer_to_server(
        JobService(driver, transfers, config.cluster, _default_action(config)),
        server,
    )
    hang_pb2_grpc.add_HangServiceServicer_to_server(HangService(driver, transfers, config.cluster), server)
    host_pb2_grpc.add_HostServiceServicer_to_server(
        HostService(driver, config.cluster),
        server,
    )
    agent_pb2_grpc.add_AgentServiceServicer_to_server(AgentService(driver, transfers, config.cluster), server)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, health_servicer


def _default_action(config: ControllerConfig) -> Action:
    try:
        return Action[config.hang_action]
    except KeyError:
        raise ConfigError(
            f"controller.toml: hang_action must be NOTIFY, RESTART or OFF, not {config.hang_action!r}."
        ) from None


def _listen(server: grpc.aio.Server, config: ControllerConfig) -> int:
    try:
        port = server.add_secure_port(config.listen, tls.server_credentials(config.tls))
    except RuntimeError as error:
        raise ConfigError(
            f"Cannot listen on {config.listen}.", fix="Check that the address is ours and the port is free."
        ) from error
    return port
