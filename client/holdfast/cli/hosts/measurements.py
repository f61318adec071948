"""Results of active checks, as lines of a host's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast._base.health import FIGURES, REASONS, shown
from holdfast._base.proto_values import short_name
from holdfast.cli.kit.durations import clock
from holdfast.v1 import host_pb2


def measured(known: host_pb2.Measurements, now: float) -> Iterator[str]:
    """Yield the newest result of the host alone and of a pair, and what comes next."""
    newest = {bool(each.partner): each for each in known.results}
    for result in newest.values():
        yield f"{clock(result.time.seconds, now)}: {in_words(result, known.usual)}"
    if known.running_job_id:
        yield f"it is being checked by the job {known.running_job_id}"
    elif known.due:
        reason = short_name(host_pb2.MeasurementReason, known.due)
        yield f"a check is due: {REASONS.get(reason, reason)}"


def in_words(result: host_pb2.Measurement, usual: Mapping[str, float]) -> str:
    """Figures beside those of other hosts, or why there are none."""
    pair = f"with {result.partner}: " if result.partner else ""
    if result.outcome != host_pb2.MEASUREMENT_OUTCOME_MEASURED:
        stopped = result.outcome == host_pb2.MEASUREMENT_OUTCOME_STOPPED
        return f"{pair}{'stopped' if stopped else 'could not be measured'}: {result.problem}"
    figures = ", ".join(_figure(name, result.figures[name], usual.get(name)) for name in sorted(result.figures))
    return pair + figures + (f"; not measured: {result.problem}" if result.problem else "")


def _figure(name: str, value: float, usual: float | None) -> str:
    unit = f" {FIGURES[name].unit}" if name in FIGURES else ""
    return f"{name} {shown(value)}{unit}" + (f" (others {shown(usual)})" if usual is not None else "")
