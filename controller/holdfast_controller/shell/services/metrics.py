"""Measures the controller, and renders the page that Prometheus scrapes.

Commits are counted here, as an observer of the driver; calls are counted by the guard.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast._daemon.metrics import daemon
from holdfast._daemon.metrics.listener import Listener, listen
from holdfast._daemon.metrics.series import Series
from holdfast_controller.core.step.step import Decision
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.core.views.gauges import gauges
from holdfast_controller.core.views.metering import Meter
from holdfast_controller.shell.base.audit import Audit
from holdfast_controller.shell.base.config import ControllerConfig
from holdfast_controller.shell.calls.authz import Guard
from holdfast_controller.shell.driver import Driver, now
from holdfast_controller.shell.notify.dispatcher import Dispatcher
from holdfast_controller.shell.services.goodput import open_gpu_ms
from holdfast_controller.shell.services.host_pacing import HostPacing
from holdfast_controller.shell.services.series import SeriesIntake
from holdfast_controller.shell.store.series.store import SeriesStore

if TYPE_CHECKING:
    from holdfast._daemon.loop_watch import LoopWatch
    from holdfast._daemon.metrics.exposition import Exposition

OPEN_EVERY_S = 60.0
"""Seconds between two sums of the open GPU time, which looks at each job."""
LOOK_S = 1.0
"""Seconds between two measurements of the event loop's delay."""


class Metrics:
    """The metrics of one controller. Make it before the driver runs; ``run`` it beside."""

    def __init__(
        self,
        config: ControllerConfig,
        driver: Driver,
        guard: Guard,
        audit: Audit,
        dispatcher: Dispatcher,
        pacing: HostPacing,
        watch: LoopWatch,
        kept_series: SeriesStore,
        intake: SeriesIntake,
    ) -> None:
        self._kept_series = kept_series
        self._intake = intake
        self._pacing = pacing
        self._config = config
        self._driver = driver
        self._guard = guard
        self._audit = audit
        self._dispatcher = dispatcher
        self._watch = watch
        self._meter = Meter(driver.cluster)
        self._series = Series()
        self._listener: Listener | None = None
        self._open_ms: Counter[tuple[str, str]] = Counter()
        self._open_due_s: float | None = None
        """When the open time is to be added up again; None until the next scrape."""
        for family in (fam.COMMIT, fam.COMMIT_EVENTS, fam.LOOP_LAG):
            self._series.declare(family)

    def begin(self, gpu_ms: Counter[tuple[str, str]]) -> None:
        """Go on with the settled GPU time, by (category, payer), that is in the store."""
        self._meter.gpu_ms = gpu_ms

    async def load(self) -> None:
        """Load what makes the page, beside the event loop: it takes a tenth of a second the first time."""
        await asyncio.to_thread(getattr, self, "_exposition")

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """(text, content type), in the form that an Accept header asks for."""
        return self._exposition.text(accept)

    def certificate_ends(self) -> dict[str, float]:
        """Ends of the certificates ``own`` and ``ca``, wall clock. One that can't be read is left out."""
        series = Series()
        self._tell_certificates(series)
        ends = series.of(daemon.CERTIFICATE_END).items()
        return {name: float(end) for (name,), end in ends if isinstance(end, float)}

    async def listen(self) -> int | None:
        """Serve the page to this machine where that is wanted, and return the port. Raises ``ConfigError``."""
        if not self._config.metrics_listen:
            return None
        assert self._exposition is not None  # loaded now, and not in the first scrape's time
        self._listener = await listen(self._config.metrics_listen, self.page, key="metrics_listen")
        return self._listener.port

    def close(self) -> None:
        """Serve no more; asking twice does nothing."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def run(self) -> None:
        """Measure how late the event loop is, and add up open GPU time while it is scraped, until cancelled."""
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(LOOK_S)
            self._series.observe(fam.LOOP_LAG, time.perf_counter() - asked - LOOK_S)
            if self._open_due_s is not None and time.monotonic() >= self._open_due_s:
                self._open_ms = await open_gpu_ms(self._driver)
                self._open_due_s = None

    @cached_property
    def _exposition(self) -> Exposition:
        # Imported only here: a controller that is never scraped needs none of it.
        from holdfast._daemon.metrics.exposition import Exposition

        return Exposition(fam.FAMILIES, self._read)

    def _read(self) -> Iterable[Series]:
        series, config = Series(), self._config
        daemon.tell_build(series)
        self._tell_certificates(series)
        daemon.tell_disks(series, [("state", config.state_dir)])
        database = config.database
        for name, path in (("database", database), ("wal", database.with_name(f"{database.name}-wal"))):
            if config.database_url:
                break  # the server's own metrics tell
            try:
                series.set(fam.STORE, path.stat().st_size, name)
            except FileNotFoundError:
                series.set(fam.STORE, 0, name)
        series.set(fam.COMMIT_PENDING, self._driver.pending)
        for method, count in self._guard.open_streams().items():
            series.set(fam.OPEN_STREAMS, count, method)
        series.set(fam.NOTIFICATIONS_WAITING, self._dispatcher.waiting)
        series.set(fam.NOTIFICATIONS_FAILING, self._dispatcher.failing)
        series.set(fam.NOTIFICATIONS_DELIVERED, self._dispatcher.delivered)
        series.set(fam.AUDIT_REFUSALS, self._audit.refusals)
        series.set(fam.AUDIT_UNWRITTEN, self._audit.only_counted)
        series.set(fam.SERIES_WRITABLE, not self._kept_series.problem and not self._kept_series.full)
        series.set(fam.SERIES_STORE, self._kept_series.bytes)
        series.set(fam.SERIES_KEPT, self._kept_series.kept)
        series.set(fam.SERIES_DROPPED, self._intake.dropped)
        syslog = self._audit.syslog
        series.set(fam.AUDIT_NOT_COPIED, syslog.dropped if syslog is not None else 0)
        if self._open_due_s is None:
            self._open_due_s = time.monotonic() + (OPEN_EVERY_S if self._open_ms else 0.0)
        for family, sums in ((fam.GPU_SECONDS, self._meter.gpu_ms), (fam.GPU_SECONDS_OPEN, self._open_ms)):
            for (category, payer), ms in sums.items():
                series.set(family, ms / 1000, category, payer)
        counted = self._meter.series, self._series, self._guard.series, self._pacing.series, self._watch.series
        return *counted, series, gauges(self._driver.cluster, now())

    def _tell_certificates(self, series: Series) -> None:
        daemon.tell_certificate(series, self._config.cert)
        daemon.tell_certificate(series, self._config.ca, "ca")

    def on_committed(self, batch: Sequence[Decision], took_s: float) -> None:
        """Count a commit and its events."""
        events = [entry.event for decision in batch for entry in decision.entries]
        self._series.observe(fam.COMMIT, took_s)
        self._series.observe(fam.COMMIT_EVENTS, len(events))
        for event in events:
            self._meter.take(event)
        for decision in batch:
            self._meter.book(decision.bookings)
