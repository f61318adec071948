"""The daemon: open the store, serve gRPC over mutual TLS, run the driver, until stopped.

Longer than 400 lines because every part of the daemon is put together here.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from holdfast._daemon import log
from holdfast._daemon.loop_watch import LoopWatch
from holdfast._daemon.sd_notify import Supervisor
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
    secret_pb2,
    secret_pb2_grpc,
    web_pb2,
    web_pb2_grpc,
)
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.backup.admin_socket import LocalCalls
from holdfast_controller.shell.base import audit_syslog
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.audit_files import Retention
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles.bundle_store import BundleStore
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.bounds import MESSAGE_BYTES
from holdfast_controller.shell.calls.connection_bounds import ConnectionBounds
from holdfast_controller.shell.convert.job_defaults import JobDefaults
from holdfast_controller.shell.driver import Driver, Observers
from holdfast_controller.shell.enrolment.issued import IssuedCertificates
from holdfast_controller.shell.enrolment.port import Enrolling
from holdfast_controller.shell.main import http_listeners, self_checks
from holdfast_controller.shell.main.fencing import Fencing
from holdfast_controller.shell.main.reload import Settings, change_policies, change_receivers, policies_of
from holdfast_controller.shell.main.standby import Standby
from holdfast_controller.shell.main.store_upkeep import count_stored, keep_leading, note_position, upkeep
from holdfast_controller.shell.notify import certificates
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.secrets.vault import Vault, open_vault
from holdfast_controller.shell.services.access_service import AccessService
from holdfast_controller.shell.services.agent_service import AgentService
from holdfast_controller.shell.services.bundle_service import BundleService
from holdfast_controller.shell.services.cluster_service import ClusterService, Health
from holdfast_controller.shell.services.evidence_requests import EvidenceRequests
from holdfast_controller.shell.services.hang_service import HangService
from holdfast_controller.shell.services.host_pacing import HostPacing
from holdfast_controller.shell.services.host_service import HostService
from holdfast_controller.shell.services.job_service import JobService
from holdfast_controller.shell.services.metrics import Metrics
from holdfast_controller.shell.services.secret_service import SecretService
from holdfast_controller.shell.services.series import SeriesIntake, forget_deleted
from holdfast_controller.shell.services.transfers import Transfers
from holdfast_controller.shell.store import high_water, ledger_rows
from holdfast_controller.shell.store.series_file import SeriesFile
from holdfast_controller.shell.store.series_store import SeriesStore
from holdfast_controller.shell.store.store import store_at
from holdfast_controller.shell.store.stored_bytes import MIB, StoredBytes
from holdfast_controller.shell.web.signed_in import SignedIn
from holdfast_controller.shell.web.web_service import WebService

if TYPE_CHECKING:
    from holdfast_controller.shell.enrolment.service import Enrolment
    from holdfast_controller.shell.rest.listener import Listener


STOP_GRACE_S = 1.0
SERVICES = (
    job_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
    hang_pb2.DESCRIPTOR.services_by_name["HangService"].full_name,
    host_pb2.DESCRIPTOR.services_by_name["HostService"].full_name,
    agent_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name,
    access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name,
    bundle_pb2.DESCRIPTOR.services_by_name["BundleService"].full_name,
    secret_pb2.DESCRIPTOR.services_by_name["SecretService"].full_name,
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
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
CONNECTIONS_SHARE = 0.5
"""Of the files that this process may open: a flood of connections leaves the store and the logs the others."""


async def serve(
    config: ControllerConfig,
    on_ready: Callable[[int], None] | None = None,
    on_http: Callable[[int], None] | None = None,
    file: Path | None = None,
    on_web: Callable[[int], None] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. Raises ``StoreError`` or ``ConfigError`` when it can't start.

    ``on_ready`` gets the port of gRPC; before it, ``on_http`` gets that of HTTP, and ``on_web`` the
    web page's, if they are served. ``file`` holds the
    settings, which are read again upon SIGHUP.
    """
    supervisor = Supervisor()
    high_water.check_presence(config.database, config.secrets_key, config.database_url)
    standby = Standby(config, supervisor)
    store = store_at(config.database, config.database_url, standby.on_stand_by)
    cluster = await standby.opened(store)
    try:
        policies = policies_of(config, await asyncio.wrap_future(store.call(store.secret_key)))
        kept = config.retention
        driver = Driver(store, cluster, policies, StoredBytes(cluster, kept.user_mb * MIB, kept.project_mb * MIB))
        vault = await open_vault(store, config.secrets_key)
        channels = Channels.of(config)
        dispatcher = Dispatcher(driver, channels, config.cluster, config.notification_retry_for)
        audit = _audit(config)
        guard = Guard(driver, config.cluster, audit)
        fencing = Fencing(driver, audit, config.fence)
        enrolling = Enrolling(config, driver, guard, audit)
        watch = LoopWatch(lambda stall: driver.stood_still(stall.seconds))
        pacing = HostPacing(driver)
        kept_series = SeriesStore(SeriesFile(config.series_database), lambda: settings.config.series_limits)
        series = SeriesIntake(driver, kept_series)
        metrics = Metrics(config, driver, guard, audit, dispatcher, pacing, watch, kept_series, series)
        whole = ClusterService(
            driver, metrics, dispatcher, config.cluster, shares_a_database=bool(config.database_url)
        )
        transfers = Transfers(series)
        signed_in = SignedIn(driver, config.cluster, audit)
        await signed_in.load()
        browsers = WebService(signed_in)
        server, health_servicer, jobs, services = _server(
            config,
            driver,
            transfers,
            channels,
            guard,
            audit,
            enrolling.service,
            whole,
            vault,
            pacing,
            browsers,
            kept_series,
        )
        port = _listen(server, config, guard)
        enrolling.listen(port)

        def access_changed(party: str) -> None:
            guard.access_changed(party)
            signed_in.access_changed(party)

        observers = Observers(
            published=dispatcher.on_published,
            committed=metrics.on_committed,
            take_evidence=EvidenceRequests(driver, transfers, pacing, series).take,
            call_fence=fencing.call,
            access_changed=access_changed,
            secret_kept=vault.keep,
        )
        watches = await asyncio.wrap_future(store.call(store.kept_watches))
        progress = await asyncio.wrap_future(store.call(store.transaction, ledger_rows.read_progress))
        metrics.begin(await asyncio.wrap_future(store.call(store.transaction, ledger_rows.read_sums)))
        driver.start(watches, observers, watch.late_s, progress)
        changes = (change_policies(driver, guard), change_receivers(jobs, dispatcher), enrolling.change)
        settings = Settings(config, file, changes)
        kept_series.start()
        local = LocalCalls(store, config.state_dir, enrolling.rotation, settings.reload)
        await local.start()
        await server.start()
        await enrolling.start()
        for name in ("", *SERVICES):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        http = await http_listeners.listen(config, services, guard, driver.confirmed)
        web = await http_listeners.listen_web(config, services, guard, signed_in, browsers, driver.confirmed)
        listeners = [each for each in (http, web) if each is not None]
        for listener, tell in ((http, on_http), (web, on_web)):
            if listener is not None and tell is not None:
                tell(listener.port)
        metrics_port = await metrics.listen()
        log.info(
            "controller.ready",
            port=port,
            http_port=http and http.port,
            web_port=web and web.port,
            metrics_port=metrics_port,
            epoch=cluster.epoch,
            jobs=len(cluster.jobs),
        )
        if not config.admins and not cluster.people.roles:
            log.warning("admins.none_set", fix='set admins = ["NAME"] in controller.toml')
        if on_ready is not None:
            on_ready(port)
        supervisor.tell(READY=1)
        watch.start()
        try:
            await _run_until_told(
                settings,
                driver,
                server,
                listeners,
                signed_in,
                dispatcher,
                guard,
                audit,
                enrolling,
                metrics,
                fencing,
                supervisor,
                kept_series,
            )
        finally:
            watch.stop()
            await local.stop()
            await asyncio.to_thread(kept_series.close)
    finally:
        await asyncio.to_thread(store.close)


async def _run_until_told(
    settings: Settings,
    driver: Driver,
    server: grpc.aio.Server,
    listeners: list[Listener],
    signed_in: SignedIn,
    dispatcher: Dispatcher,
    guard: Guard,
    audit: Audit,
    enrolling: Enrolling,
    metrics: Metrics,
    fencing: Fencing,
    supervisor: Supervisor,
    series: SeriesStore,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            alive = supervisor.keep_telling(lambda: _status(driver.cluster))
            ends = partial(_certificate_ends, driver, metrics, settings)
            watching = certificates.watch(driver, ends, lambda: settings.config.certificates.host)
            sweeping = upkeep(driver, lambda: settings.config.retention.history)
            works = (
                driver.run(),
                settings.run(),
                sweeping,
                note_position(driver),
                *([keep_leading(driver)] if settings.config.database_url else []),
                count_stored(driver),
                forget_deleted(driver, series),
                dispatcher.run(),
                audit.run(),
                audit.copy(),
                enrolling.run(),
                metrics.run(),
                fencing.run(),
                signed_in.run(),
                watching,
                self_checks.run(driver, lambda: settings.config, dispatcher),
                alive,
            )
            running = [tasks.create_task(work) for work in works]
            await stop.wait()
            log.info("controller.stopping")
            supervisor.tell(STOPPING=1)
            metrics.close()
            await _stop_serving(server, listeners, guard, enrolling)
            await driver.settled()
            await audit.flush()
            if audit.syslog is not None:
                await audit.syslog.drain(STOP_GRACE_S)
            for task in running:
                task.cancel()
    finally:
        # Also when a commit has failed: no caller is served from a state that the disk doesn't hold.
        metrics.close()
        for listener in listeners:
            await listener.close(0.0)
        await enrolling.stop()
        await server.stop(None)


async def _certificate_ends(driver: Driver, metrics: Metrics, settings: Settings) -> dict[str, float]:
    """Ends of the controller's certificates, and of those of hosts that are not lost: one that is off renews none."""
    ends = metrics.certificate_ends()
    for party, newest in (await IssuedCertificates(driver.store).all()).items():
        host = driver.cluster.hosts.get(party.removeprefix("host/"))
        if party.startswith("host/") and host is not None and not host.lost:
            ends[party] = newest.issued_at + settings.config.certificates.host
    return ends


async def _stop_serving(
    server: grpc.aio.Server, listeners: list[Listener], guard: Guard, enrolling: Enrolling
) -> None:
    """Take no more calls; those that are being answered have a second. Streams have no end to wait for."""
    async with asyncio.TaskGroup() as endings:
        for listener in listeners:
            endings.create_task(listener.close(STOP_GRACE_S))
        endings.create_task(enrolling.stop())
        endings.create_task(server.stop(STOP_GRACE_S))
        # Once no disconnected caller could come back to this process.
        await asyncio.sleep(0)
        guard.end_streams()


def _audit(config: ControllerConfig) -> Audit:
    retention = Retention(config.audit_mb << 20, config.audit_days * 86_400.0)
    server = audit_syslog.parse(config.audit_syslog) if config.audit_syslog else None
    return Audit(config.state_dir, retention, audit_syslog.SyslogCopy(server) if server is not None else None)


def _status(cluster: Cluster) -> str:
    heard = sum(cluster.presence_of(name).session is not None for name in cluster.hosts)
    return f"{heard} of {len(cluster.hosts)} hosts connected, {len(cluster.queue)} jobs wait"


def _server(
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
) -> tuple[grpc.aio.Server, health.aio.HealthServicer, JobService, dict[str, object]]:
    options = (*OPTIONS, ("grpc.max_allowed_incoming_connections", _connections_most()))
    server = grpc.aio.server(interceptors=(guard,), options=options)
    bundles = BundleStore(config.state_dir / "bundles", config.bundles)
    jobs = JobService(
        driver,
        transfers,
        config.cluster,
        JobDefaults.of(config),
        channels,
        bundles,
        series,
    )
    hosts = HostService(driver)
    job_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
    bundle_pb2_grpc.add_BundleServiceServicer_to_server(BundleService(driver, bundles), server)
    hangs = HangService(driver, transfers)
    hang_pb2_grpc.add_HangServiceServicer_to_server(hangs, server)
    host_pb2_grpc.add_HostServiceServicer_to_server(hosts, server)
    cluster_pb2_grpc.add_ClusterServiceServicer_to_server(whole, server)
    agents = AgentService(driver, transfers, vault, pacing)
    agent_pb2_grpc.add_AgentServiceServicer_to_server(agents, server)
    secret_pb2_grpc.add_SecretServiceServicer_to_server(SecretService(driver, guard, vault), server)
    access = AccessService(driver, guard, audit, enrolment, config.cluster)
    access_pb2_grpc.add_AccessServiceServicer_to_server(access, server)
    web_pb2_grpc.add_WebServiceServicer_to_server(browsers, server)
    health_servicer = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    over_http = {
        "JobService": jobs,
        "HangService": hangs,
        "HostService": hosts,
        "ClusterService": whole,
        "AccessService": access,
        "WebService": browsers,
    }
    return server, health_servicer, jobs, {f"holdfast.v1.{name}": servicer for name, servicer in over_http.items()}


def _connections_most() -> int:
    return int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * CONNECTIONS_SHARE)


def _listen(server: grpc.aio.Server, config: ControllerConfig, guard: Guard) -> int:
    bounds = ConnectionBounds(guard.callers, _connections_most())
    try:
        credentials = tls.server_credentials(config.tls, begun=bounds.begun)
        port = bounds.port = server.add_secure_port(config.listen, credentials)
    except RuntimeError as error:
        raise AddressUnavailable(
            f"Cannot listen on {config.listen}.", fix="Check that the address is ours and the port is free."
        ) from error
    return port
