"""Series as the text that Prometheus reads, by prometheus-client: its own text form, or OpenMetrics.

It costs a daemon 40 ms of CPU at its start and 2.3 MB, so only those load it that serve metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast._daemon.metrics.series import Family, Histogram, Kind, Series

Exposed = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class Exposition:
    """The families of one daemon, with the usual figures of its process (``process_…``)."""

    def __init__(self, families: Sequence[Family], read: Callable[[], Iterable[Series]]) -> None:
        """``read`` is asked at each scrape; what it gives of families that are not declared is a ``KeyError``."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Process(registry=None))
        self._registry.register(_Declared(families, read))

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """(the page, its content type), in the form that an Accept header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Process(ProcessCollector):
    """Memory, CPU and files of this process.

    The time of the boot stands in /proc/stat, which the controller's unit hides from it (ProcSubset=pid).
    """

    def _boot_time(self) -> float:
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class _Declared(Collector):
    def __init__(self, families: Sequence[Family], read: Callable[[], Iterable[Series]]) -> None:
        self._families = families
        self._read = read

    def collect(self) -> Iterable[Exposed]:
        exposed = {family: _exposed(family) for family in self._families}
        for series in self._read():
            for family in series:
                for labels, value in series.of(family).items():
                    _add(exposed[family], labels, value)
        return exposed.values()


def _exposed(family: Family) -> Exposed:
    if family.kind is Kind.HISTOGRAM:
        return HistogramMetricFamily(family.name, family.help, labels=family.labels)
    if family.kind is Kind.COUNTER:
        return CounterMetricFamily(family.name, family.help, labels=family.labels)
    return GaugeMetricFamily(family.name, family.help, labels=family.labels)


def _add(exposed: Exposed, labels: tuple[str, ...], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        assert isinstance(exposed, HistogramMetricFamily)
        exposed.add_metric(labels, value.cumulative(), value.sum)
    else:
        assert not isinstance(exposed, HistogramMetricFamily)
        exposed.add_metric(labels, value)
