"""A newer controller may send values of enums that this client doesn't know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import Message
from tests.unit.cli.pages.answers import full_host, full_job, full_status

import holdfast
import holdfast_controller
from holdfast._base.proto_values import full_name, short_name
from holdfast._sdk import json_view
from holdfast.cli.hosts import host_tables
from holdfast.cli.hosts.measurements import measured
from holdfast.cli.pages import job_page
from holdfast.cli.pages.job_tables import state_cell as job_state
from holdfast.v1 import host_pb2, job_pb2, spec_pb2

NEW = 4711


def with_new_values(message: Message) -> int:
    """Set every enum in a message to a value that isn't known; how many there were."""
    count = 0
    for field, value in message.ListFields():
        if field.enum_type is not None and field.enum_type.file.package == "holdfast.v1":
            if isinstance(value, int):
                setattr(message, field.name, NEW)
                count += 1
        elif isinstance(value, Message):
            count += with_new_values(value)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            count += sum(with_new_values(each) for each in value)
    return count


def test_a_known_value_goes_by_its_name() -> None:
    assert full_name(job_pb2.JobState, job_pb2.JOB_STATE_RUNNING) == "JOB_STATE_RUNNING"
    assert short_name(job_pb2.JobState, job_pb2.JOB_STATE_RUNNING) == "RUNNING"
    assert short_name(spec_pb2.SchedulingStrategy, 0) == "UNSPECIFIED"


def test_an_unknown_value_goes_by_its_number() -> None:
    assert full_name(host_pb2.HostState, NEW) == short_name(host_pb2.HostState, NEW) == str(NEW)
    assert short_name(host_pb2.HostState, -1) == "-1"


def test_json_and_tables_bear_values_of_a_newer_controller() -> None:
    job, host, status = full_job(), full_host(), full_status()
    assert all(with_new_values(each) for each in (job, host, status))
    assert json_view.job(job)["state"] == str(NEW)
    assert json_view.host(host)["state"] == str(NEW)
    assert json_view.status(status)
    assert job_state(job.state).text == str(NEW)
    pages = {
        "host": host_tables.page(host, 0.0, wide=True, width=None, colour=False),
        "job": job_page.page(job, 0.0, wide=True, width=None, colour=False),
    }
    assert all(str(NEW) in "\n".join(lines) for lines in pages.values())
    host.measurements.due = host_pb2.MeasurementReason.ValueType(NEW)
    host.measurements.ClearField("running_job_id")
    assert f"a check is due: {NEW}" in list(measured(host.measurements, 0.0))


def sources() -> Iterator[Path]:
    for package in (holdfast, holdfast_controller):
        yield from Path(str(package.__file__)).parent.rglob("*.py")


def test_names_are_asked_for_in_a_way_that_bears_unknown_values() -> None:
    """``Name`` of protobuf raises for a value that isn't known; in these files none can come from elsewhere."""
    allowed = {"rpc_status.py", "errors.py", "audit_words.py"}
    found = {
        path.name
        for path in sources()
        if not path.name.endswith("_pb2.py") and re.search(r"_pb2\.[\w.]+\.Name\(", path.read_text())
    }
    assert found == allowed
