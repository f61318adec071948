"""Serves the agent's metrics, where its settings want that.

A port that is taken never stops the agent: the failure is logged, and the port is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from holdfast._base.identity import Identity, Kind
from holdfast._daemon import log
from holdfast._daemon.metrics import daemon
from holdfast._daemon.metrics.listener import Listener, listen
from holdfast._daemon.metrics.series import Series
from holdfast._security import certificate
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, Denied
from holdfast_agent.core.metrics import families as fam
from holdfast_agent.core.metrics.metering import Meter
from holdfast_agent.shell.config import Config

if TYPE_CHECKING:
    from holdfast._daemon.metrics.exposition import Exposition

DISKS_S = 30.0
"""How often the disks are looked at; in a thread, since a file system may hang."""
AGAIN_S = 30.0


def _load() -> None:
    """Load what only an agent with metrics needs: 2 MB, and a tenth of a second that would hold the event loop."""
    import holdfast._daemon.metrics.connection
    import holdfast._daemon.metrics.exposition  # noqa: F401


class Metrics:
    """The metrics of one agent. ``gauges`` and ``shims`` read the current state; ``stalls`` are its loop's."""

    def __init__(
        self,
        settings: Config,
        meter: Meter,
        gauges: Callable[[float], Series],
        shims: Callable[[], int],
        stalls: Series,
    ) -> None:
        self._settings = settings
        self.readers = settings.metrics_readers
        """Users who may read them over TLS."""
        self._meter = meter
        self._gauges = gauges
        self._shims = shims
        self._stalls = stalls
        self._disks = Series()

    async def run(self) -> None:
        """Serve until cancelled; return at once if no listener is configured."""
        settings = self._settings
        if not settings.metrics_listen:
            return
        await anyio.to_thread.run_sync(_load)
        from holdfast._daemon.metrics.exposition import Exposition

        page = Exposition(fam.FAMILIES, self._read)
        listener = await self._listen(page)
        try:
            while True:
                self._disks = await anyio.to_thread.run_sync(self._look_at_disks, abandon_on_cancel=True)
                await anyio.sleep(DISKS_S)
        finally:
            listener.close()

    async def _listen(self, page: Exposition) -> Listener:
        settings, logged = self._settings, ""
        files = TlsFiles(settings.ca, settings.cert, settings.key)
        while True:
            try:
                found = await listen(
                    settings.metrics_listen, page.text, key="metrics_listen", files=files, admits=self._admits
                )
            except ConfigError as error:
                if logged != str(error):
                    log.warning("metrics.listen_failed", error=str(error))
                logged = str(error)
                await anyio.sleep(AGAIN_S)
            else:
                log.info("metrics.listening", port=found.port)
                return found

    def _admits(self, who: Identity) -> None:
        """Raise ``Denied`` unless the settings name the caller as a reader.

        Only the controller refuses users who were removed: here a certificate is good until it expires.
        """
        settings = self._settings
        cluster = certificate.read(settings.cert).identity.cluster
        if (who.cluster, who.kind) != (cluster, Kind.USER) or who.name not in self.readers:
            readers = ", ".join(self.readers) or "nobody"
            raise Denied(f"{who} may not read this host's metrics.", fix=f"metrics_readers names {readers}.")

    def _read(self) -> Iterable[Series]:
        series = Series()
        daemon.tell_build(series)
        daemon.tell_certificate(series, self._settings.cert)
        series.set(fam.SHIMS, self._shims())
        return self._meter.series, self._disks, self._stalls, series, self._gauges(time.monotonic())

    def _look_at_disks(self) -> Series:
        series = Series()
        daemon.tell_disks(series, [("state", self._settings.state_dir), ("logs", self._settings.log_dir)])
        return series
