"""Families are declared by the rules of names, and series keep what is counted of them."""

from __future__ import annotations

import builtins
import re
from typing import Any

import psutil
import pytest

from holdfast._daemon.metrics import series as metrics
from holdfast._daemon.metrics.exposition import Exposition
from holdfast._daemon.metrics.series import (
    LABEL_MOST,
    OTHER,
    Family,
    Histogram,
    Kind,
    Series,
    counter,
    gauge,
    histogram,
)

JOBS = gauge("holdfast_jobs", "Jobs.", "state")
CALLS = counter("holdfast_calls_total", "Calls.", "method", "code")
TOOK = histogram("holdfast_took_seconds", "Time.", "phase", bounds=(0.1, 1.0))


@pytest.mark.parametrize(
    ("name", "kind", "help", "bounds"),
    [
        ("jobs", Kind.GAUGE, "No prefix.", ()),
        ("holdfast_jobs", Kind.GAUGE, "no sentence", ()),
        ("holdfast_calls", Kind.COUNTER, "No total.", ()),
        ("holdfast_jobs_total", Kind.GAUGE, "No counter.", ()),
        ("holdfast_took_seconds", Kind.HISTOGRAM, "No bounds.", ()),
        ("holdfast_took_seconds", Kind.HISTOGRAM, "Bounds that don't rise.", (1.0, 1.0)),
        ("holdfast_jobs", Kind.GAUGE, "Bounds of a gauge.", (1.0,)),
    ],
)
def test_declaration_that_breaks_a_rule_is_refused(
    name: str, kind: Kind, help: str, bounds: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=name):
        Family(name, kind, help, (), bounds)


def test_counters_add_up_and_gauges_stand_where_they_were_set() -> None:
    series = Series()
    series.add(CALLS, "GetJob", "OK")
    series.add(CALLS, "GetJob", "OK", by=2)
    series.add(CALLS, "GetJob", "NOT_FOUND")
    series.set(JOBS, 3, "RUNNING")
    series.set(JOBS, 1, "RUNNING")
    assert series.of(CALLS) == {("GetJob", "OK"): 3.0, ("GetJob", "NOT_FOUND"): 1.0}
    assert series.of(JOBS) == {("RUNNING",): 1.0}
    assert list(series) == [CALLS, JOBS]


def test_value_falls_into_the_bucket_whose_bound_it_does_not_exceed() -> None:
    series = Series()
    for value in (0.05, 0.1, 0.5, 7.0, -1.0):
        series.observe(TOOK, value, "stop")
    found = series.of(TOOK)[("stop",)]
    assert isinstance(found, Histogram)
    assert found.cumulative() == [("0.1", 3.0), ("1.0", 4.0), ("+Inf", 5.0)]
    assert found.sum == pytest.approx(7.65)


def test_what_is_declared_begins_at_nothing_and_loses_nothing_when_declared_again() -> None:
    series = Series()
    series.declare(CALLS, "GetJob", "OK")
    series.declare(TOOK, "stop")
    assert series.of(CALLS) == {("GetJob", "OK"): 0.0}
    series.add(CALLS, "GetJob", "OK")
    series.declare(CALLS, "GetJob", "OK")
    assert series.of(CALLS) == {("GetJob", "OK"): 1.0}


def test_labels_have_to_be_those_of_the_family() -> None:
    with pytest.raises(ValueError, match="holdfast_calls_total"):
        Series().add(CALLS, "GetJob")


def test_page_tells_of_the_process_without_looking_at_the_whole_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller's unit hides /proc/stat from it, where the library would look for the time of the boot."""
    from holdfast._daemon.metrics.exposition import Exposition

    really_open, began = builtins.open, psutil.Process().create_time()

    def guarded(path: object, *rest: Any, **more: Any) -> Any:
        if path == "/proc/stat":
            raise FileNotFoundError(path)
        return really_open(path, *rest, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", guarded)
    text, _ = Exposition((), list).text()
    started = re.search(rb"^process_start_time_seconds (\S+)$", text, re.MULTILINE)
    assert started is not None
    assert abs(float(started[1]) - began) < 60
    assert b"process_resident_memory_bytes" in text and b"process_cpu_seconds_total" in text


HOSTILE = [
    'x"} 1\nholdfast_forged 1\n# ',
    "\\",
    '\\"} 1 # ',
    "a\r\nholdfast_forged 1",
    "a\u2028holdfast_forged 1",
    "\x00\x1b[2J",
    "\ud800",
    'x",y="z',
]


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_label_value_forges_a_line_or_a_label(hostile: str, accept: str) -> None:
    series = Series()
    series.set(JOBS, 1, hostile)
    page, _ = Exposition([JOBS], lambda: [series]).text(accept)
    ours = [line for line in page.split(b"\n") if not line.startswith((b"#", b"process_", b"python_")) and line]
    assert len(ours) == 1, ours
    assert re.fullmatch(rb'holdfast_jobs\{state="(?:[^"\\\n]|\\["\\n])*"\} 1\.0', ours[0]), ours


def test_a_family_has_only_so_many_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SERIES_MOST", 50)
    series = Series()
    for number in range(550):
        series.add(CALLS, f"m{number}", "OK")
    found = series.of(CALLS)
    assert len(found) == 51
    assert found[OTHER, OTHER] == 500.0
    series.add(CALLS, "m0", "OK")
    assert found["m0", "OK"] == 2.0, "series that are there still count"


def test_a_long_label_value_is_cut() -> None:
    series = Series()
    series.set(JOBS, 1, "x" * 10_000)
    assert [len(label) for (label,) in series.of(JOBS)] == [LABEL_MOST]
