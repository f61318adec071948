"""Gauges of the controller's metrics: the overview, and other values of the model."""

from __future__ import annotations

from collections import Counter

from holdfast._base.health import Health
from holdfast._daemon.metrics.series import Series
from holdfast_controller.core.model.clock import Now
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.caution import LEMON
from holdfast_controller.core.model.hosts.spares import ready_spares
from holdfast_controller.core.views import metric_families as fam
from holdfast_controller.core.views.overview import overview


def gauges(cluster: Cluster, now: Now) -> Series:
    """Every gauge of the cluster, for one scrape."""
    series, found = Series(), overview(cluster, now)
    for state, count in found.jobs.items():
        series.set(fam.JOBS, count, state)
    for state, count in found.hosts.items():
        series.set(fam.HOSTS, count, state)
    for gpu_state, count in found.gpus.items():
        series.set(fam.GPUS, count, gpu_state)
    for version, count in found.versions.items():
        series.set(fam.AGENTS, count, version)
    for host, silent_s in found.silent_s.items():
        series.set(fam.HOST_SILENT, silent_s, host)
    for host, shares in found.quarantined.items():
        series.set(fam.HOST_QUARANTINED, shares, host)
    for health, count in _findings(cluster).items():
        series.set(fam.FINDINGS, count, health.value)
    series.set(fam.LEMONS, sum(LEMON in host.failed_checks for host in cluster.hosts.values()))
    for rule, count in ready_spares(cluster.spares, cluster.hosts).items():
        series.set(fam.SPARES, count, rule)
    series.set(fam.QUEUE, found.waiting)
    oldest = found.oldest_since
    series.set(fam.QUEUE_OLDEST, 0.0 if oldest is None else max(now.wall - oldest, 0.0))
    if found.smallest_gpus is not None:
        series.set(fam.QUEUE_SMALLEST, found.smallest_gpus)
    series.set(fam.HANG_SUSPECTS, len(cluster.suspects))
    series.set(fam.HANGS_OPEN, len(found.hangs))
    series.set(fam.SESSIONS, found.connected)
    series.set(fam.LOG_EVENTS, cluster.sequence)
    series.set(fam.EPOCH, cluster.epoch)
    return series


def _findings(cluster: Cluster) -> Counter[Health]:
    found = Counter(dict.fromkeys(Health, 0))
    for host in cluster.hosts.values():
        found.update(failed.health for failed in host.failed_checks.values() if failed.health is not None)
    return found
