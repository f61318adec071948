"""Measurements of a host by active checks, as users see them."""

from __future__ import annotations

from holdfast.v1 import host_pb2
from holdfast_controller.core.hosts.measured import usual
from holdfast_controller.core.model.cluster import Cluster
from holdfast_controller.core.model.hosts.host import Host
from holdfast_controller.core.model.hosts.measurements import URGENCY, Kind, Measurement, Outcome, Why
from holdfast_controller.shell.convert.job_to_proto import timestamp


def measurements_to_proto(cluster: Cluster, host: Host) -> host_pb2.Measurements:
    """All that is kept of a host, and what others like it have of its newest figures."""
    measured = host.measured
    due = [why for kind in Kind if (why := measured.due(kind)) is not None]
    message = host_pb2.Measurements(
        results=[measurement_to_proto(each) for each in sorted(measured.results, key=lambda each: each.at)],
        running_job_id=measured.running,
        due=reason_to_proto(min(due, key=URGENCY.__getitem__)) if due else host_pb2.MEASUREMENT_REASON_UNSPECIFIED,
    )
    for kind in Kind:
        known = [each for each in measured.results if each.kind is kind and each.outcome is Outcome.MEASURED]
        for figure in known[-1].figures if known else ():
            if (found := usual(cluster.hosts.values(), host.name, figure, known[-1])) is not None:
                message.usual[figure] = found.value
    return message


def measurement_to_proto(result: Measurement) -> host_pb2.Measurement:
    """One check that has ended."""
    return host_pb2.Measurement(
        time=timestamp(result.at),
        job_id=result.job,
        reason=reason_to_proto(result.why),
        outcome=host_pb2.MeasurementOutcome.Value(f"MEASUREMENT_OUTCOME_{result.outcome.name}"),
        partner=result.partner,
        hardware=result.hardware,
        software=result.software,
        figures=result.figures,
        problem=result.problem,
    )


def reason_to_proto(why: Why) -> host_pb2.MeasurementReason.ValueType:
    """Why a host is measured."""
    return host_pb2.MeasurementReason.Value(f"MEASUREMENT_REASON_{why.name}")
