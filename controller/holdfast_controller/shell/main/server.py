"""The daemon: open the store, serve gRPC over mutual TLS, run the driver, until stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grpc_health.v1 import health_pb2

from holdfast._base.plural import count
from holdfast._daemon import log
from holdfast._daemon.loop_watch import LoopWatch
from holdfast._daemon.sd_notify import Supervisor
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.shell.backup.admin_socket import LocalCalls
from holdfast_controller.shell.base import audit_syslog
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.audit_files import Retention
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.bundles.bundle_store import BundleStore
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.calls.slices import TURNS, at_once
from holdfast_controller.shell.driver import Driver, Observers
from holdfast_controller.shell.enrolment.issued import IssuedCertificates
from holdfast_controller.shell.enrolment.port import Enrolling
from holdfast_controller.shell.main import grpc_server, http_listeners, self_checks
from holdfast_controller.shell.main.fencing import Fencing
from holdfast_controller.shell.main.preload import preload
from holdfast_controller.shell.main.reload import Settings, change_policies, change_receivers, policies_of
from holdfast_controller.shell.main.serving import Serving
from holdfast_controller.shell.main.shared_settings import digests
from holdfast_controller.shell.main.standby import Standby
from holdfast_controller.shell.main.store_upkeep import count_stored, keep_leading, note_position, upkeep
from holdfast_controller.shell.notify import certificates
from holdfast_controller.shell.notify.channels import Channels
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.secrets.vault import open_vault
from holdfast_controller.shell.services import reliability
from holdfast_controller.shell.services.bundle_service import tend
from holdfast_controller.shell.services.cluster_service import ClusterService
from holdfast_controller.shell.services.evidence_requests import EvidenceRequests
from holdfast_controller.shell.services.host_pacing import HostPacing
from holdfast_controller.shell.services.metrics import Metrics
from holdfast_controller.shell.services.series import SeriesIntake, forget_deleted
from holdfast_controller.shell.services.streams.transfers import Transfers
from holdfast_controller.shell.store import high_water, ledger_rows
from holdfast_controller.shell.store.series.file import SeriesFile
from holdfast_controller.shell.store.series.store import SeriesStore
from holdfast_controller.shell.store.store import store_at
from holdfast_controller.shell.store.stored_bytes import MIB, StoredBytes
from holdfast_controller.shell.web.signed_in import SignedIn
from holdfast_controller.shell.web.web_service import WebService

STOP_GRACE_S = 1.0
Work = Callable[[], Coroutine[Any, Any, None]]
"""What goes on for as long as the controller leads."""


async def serve(
    config: ControllerConfig,
    on_ready: Callable[[int], None] | None = None,
    on_http: Callable[[int], None] | None = None,
    file: Path | None = None,
    on_web: Callable[[int], None] | None = None,
    on_stand_by: Callable[[], None] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. Raises ``StoreError`` or ``ConfigError`` when it can't start.

    ``on_ready`` gets the port of gRPC; before it, ``on_http`` gets that of HTTP, and ``on_web`` the
    web page's, if they are served. ``on_stand_by`` is called where another controller leads, and this one may wait for
    months. ``file`` holds the settings, which are read again upon SIGHUP.
    """
    supervisor = Supervisor()
    high_water.check_presence(config.database, config.secrets_key, config.database_url)
    standby = Standby(config, supervisor, on_stand_by)
    store = store_at(config.database, config.database_url, standby.on_stand_by)
    store.engine.settings = digests(config)
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
            driver,
            metrics,
            dispatcher,
            config.cluster,
            shares_a_database=bool(config.database_url),
            topology=lambda: settings.config.topology,
        )
        transfers = Transfers(series)
        bundles = BundleStore(config.state_dir / "bundles", config.bundles)
        signed_in = SignedIn(driver, config.cluster, audit)
        await signed_in.load()
        browsers = WebService(signed_in)
        server, health_servicer, jobs, services = grpc_server.build(
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
            bundles,
        )
        port = grpc_server.listen(server, config, guard)
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
        for name in ("", *grpc_server.SERVICES):
            await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        serving = Serving(server, enrolling, metrics, guard)

        def state() -> tuple[int, Hashable]:
            """The state that answers come from: the log, and settings, which a reload changes without an event."""
            return driver.cluster.sequence, id(settings.config)

        async def finish_start() -> None:
            """Serve HTTP too, and tell that all is served. Hosts and clients don't wait for the page's modules."""
            await asyncio.to_thread(preload, config)
            http = await http_listeners.listen(config, services, guard, driver.confirmed)
            serving.also(http)
            web = await http_listeners.listen_web(
                config, services, guard, signed_in, browsers, driver.confirmed, state
            )
            serving.also(web)
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

        works: tuple[Work, ...] = (
            driver.run,
            settings.run,
            partial(upkeep, driver, lambda: settings.config.retention.history),
            partial(note_position, driver),
            *([partial(keep_leading, driver)] if config.database_url else []),
            partial(count_stored, driver),
            partial(forget_deleted, driver, kept_series),
            partial(tend, driver, bundles),
            dispatcher.run,
            audit.run,
            enrolling.run,
            metrics.run,
            partial(reliability.run, driver),
            fencing.run,
            signed_in.run,
            partial(
                certificates.watch,
                driver,
                partial(_certificate_ends, driver, metrics, settings),
                lambda: settings.config.certificates.host,
            ),
            partial(self_checks.run, driver, lambda: settings.config, dispatcher),
            partial(supervisor.keep_telling, lambda: _status(driver.cluster)),
        )
        TURNS.between_commits = driver.settled
        try:
            await _run_until_told(works, finish_start, serving, driver, audit, supervisor)
        finally:
            TURNS.between_commits = at_once
            watch.stop()
            await local.stop()
            await asyncio.to_thread(kept_series.close)
    finally:
        await asyncio.to_thread(store.close)


async def _run_until_told(
    works: Sequence[Work],
    finish_start: Callable[[], Awaitable[None]],
    serving: Serving,
    driver: Driver,
    audit: Audit,
    supervisor: Supervisor,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(work()) for work in works]
            copying = tasks.create_task(audit.copy())
            await finish_start()
            await stop.wait()
            log.info("controller.stopping")
            supervisor.tell(STOPPING=1)
            await serving.stop(STOP_GRACE_S)
            await driver.settled()
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await asyncio.to_thread(driver.store.close)  # before all that is left: another controller waits for it
            await audit.flush()
            if audit.syslog is not None:
                await audit.syslog.drain(STOP_GRACE_S)
            copying.cancel()
    finally:
        # Also when a commit has failed: no caller is served from a state that the disk doesn't hold.
        await serving.close()


async def _certificate_ends(driver: Driver, metrics: Metrics, settings: Settings) -> dict[str, float]:
    """Ends of the controller's certificates, and of those of hosts that are not lost: one that is off renews none."""
    ends = metrics.certificate_ends()
    for party, newest in (await IssuedCertificates(driver.store).all()).items():
        host = driver.cluster.hosts.get(party.removeprefix("host/"))
        if party.startswith("host/") and host is not None and not host.lost:
            ends[party] = newest.issued_at + settings.config.certificates.host
    return ends


def _audit(config: ControllerConfig) -> Audit:
    retention = Retention(config.audit_mb << 20, config.audit_days * 86_400.0)
    server = audit_syslog.parse(config.audit_syslog) if config.audit_syslog else None
    return Audit(config.state_dir, retention, audit_syslog.SyslogCopy(server) if server is not None else None)


def _status(cluster: Cluster) -> str:
    heard = sum(cluster.presence_of(name).session is not None for name in cluster.hosts)
    return f"{heard} of {len(cluster.hosts)} hosts connected, {count(len(cluster.queue), 'job')} queued"
