"""Every field of every message that is received has a bound, and is held to it before any handler."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from holdfast import spec, v1
from holdfast.errors import InvalidInput
from holdfast.v1 import agent_pb2, enrolment_pb2, host_pb2, job_pb2
from holdfast_controller.shell.calls import bounds, field_bounds
from holdfast_controller.shell.main.grpc_server import SERVICES

FILES = [
    importlib.import_module(f"holdfast.v1.{module.name}")
    for module in pkgutil.iter_modules(v1.__path__)
    if module.name.endswith("_pb2")
]
Path = tuple[FieldDescriptor, ...]
SIGNED = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
WHOLE = {*SIGNED, FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}


def received() -> Iterator[tuple[Descriptor, bool]]:
    """The message that each method takes, and whether hosts send it."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                assert method.input_type is not None
                yield method.input_type, service.name == "AgentService"


def fields(of: Descriptor, above: Path = ()) -> Iterator[Path]:
    """Every field of a message and of the messages in it, each with the fields that lead to it."""
    for field in of.fields:
        path = (*above, field)
        if field_bounds.skipped(field):
            continue
        yield path
        inner = field.message_type
        if inner is not None and inner.full_name.startswith("holdfast.") and not bounds.is_map(field):
            yield from fields(inner, path)


ALL = [(of, hosts, path) for of, hosts in received() for path in fields(of)]


def name(path: Path) -> str:
    return f"{path[-1].containing_type.name}.{path[-1].name}" if path[-1].containing_type else path[-1].name


def message_with(of: Descriptor, path: Path, value: Any) -> Message:
    """A message in which that field holds ``value``: a list for a repeated one, a dict for a map."""
    whole = GetMessageClass(of)()
    at: Any = whole
    for step in path[:-1]:
        at = getattr(at, step.name).add() if bounds.is_list(step) else getattr(at, step.name)
        at.SetInParent()
    field = path[-1]
    if bounds.is_map(field):
        getattr(at, field.name).update(value)
    elif bounds.is_list(field):
        if field.message_type is not None:
            for _ in value:
                getattr(at, field.name).add()
        else:
            getattr(at, field.name).extend(value)
    else:
        setattr(at, field.name, value)
    return whole


def held(of: Descriptor, hosts: bool, path: Path, value: Any) -> bool:
    """Whether a message that holds ``value`` there is refused, or cut so that the next reading finds nothing."""
    message = message_with(of, path, value)
    before = message.ByteSize()
    try:
        bounds.check(message, from_host=hosts)
    except InvalidInput as error:
        return all(each.path and each.problem for each in error.violations)
    if message.ByteSize() == before:
        return False
    bounds.check(message, from_host=False)
    return True


TEXTS = [each for each in ALL if each[2][-1].cpp_type == FieldDescriptor.CPPTYPE_STRING]


def test_lists_within_their_bounds_are_not_walked_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 of them held up all other calls for 55 ms."""
    looked_at: list[object] = []

    def noted(value: object, *_: object) -> str:
        looked_at.append(value)
        return ""

    monkeypatch.setattr(bounds, "_problem", noted)
    bounds.check(job_pb2.StreamLogsRequest(ranks=range(1000), workers=["workerpool0-0"] * 1000))
    assert looked_at == []


LISTS = [each for each in ALL if bounds.is_list(each[2][-1])]
NUMBERS = [
    (of, path)
    for of, hosts, path in ALL
    if not hosts and path[-1].cpp_type in WHOLE and path[-1].enum_type is None and not bounds.is_list(path[-1])
]


def test_every_service_that_the_controller_serves_is_walked() -> None:
    served = {*SERVICES, enrolment_pb2.DESCRIPTOR.services_by_name["EnrolmentService"].full_name}
    assert {service.full_name for file in FILES for service in file.DESCRIPTOR.services_by_name.values()} == served


def test_the_contract_is_walked() -> None:
    found = {f"{path[-1].full_name}" for _, _, path in ALL}
    assert len(found) > 120
    assert {"holdfast.v1.Wait.what", "holdfast.v1.UploadOpen.digest", "holdfast.v1.GpuFault.cause"} <= found


@pytest.mark.parametrize(("of", "hosts", "path"), TEXTS, ids=[f"{of.name}:{name(path)}" for of, _, path in TEXTS])
def test_a_text_is_held_to_its_bytes(of: Descriptor, hosts: bool, path: Path) -> None:
    field, most = path[-1], field_bounds.bound_of(path[-1]).bytes
    for size, beyond in ((most, False), (most + 1, True)):
        text: Any = b"x" * size if field.type == FieldDescriptor.TYPE_BYTES else "x" * size
        assert held(of, hosts, path, [text] if bounds.is_list(field) else text) is beyond
    if field.type != FieldDescriptor.TYPE_BYTES:
        text = "é" * (most // 2 + 1)
        assert held(of, hosts, path, [text] if bounds.is_list(field) else text)


@pytest.mark.parametrize(("of", "hosts", "path"), LISTS, ids=[f"{of.name}:{name(path)}" for of, _, path in LISTS])
def test_a_list_is_held_to_its_entries(of: Descriptor, hosts: bool, path: Path) -> None:
    field, most = path[-1], field_bounds.bound_of(path[-1]).items
    for count, beyond in ((most, False), (most + 1, True)):
        values: Any = [("" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 0)] * count
        if bounds.is_map(field):
            values = {str(number): "" for number in range(count)}
        assert held(of, hosts, path, values) is beyond


def test_numbers_of_users_are_within_their_range() -> None:
    exempt = {each for each, bound in field_bounds.TABLE.items() if bound.low < 0}
    # Their handlers answer CURSOR_EXPIRED and NOT_FOUND, as to any number that there is not.
    # In quotas -1 is no limit, and the core says what else is none.
    quotas = {f"QuotaLimits.{name}" for name in ("gpus", "running_jobs", "waiting_jobs", "max_priority")}
    assert exempt == {"WatchJobRequest.cursor", "GetHangEvidenceRequest.number", *quotas}
    assert len(NUMBERS) > 6
    for of, path in NUMBERS:
        if name(path) in exempt:
            continue
        bound = field_bounds.bound_of(path[-1])
        assert path[-1].cpp_type not in SIGNED or held(of, False, path, -1), name(path)
        assert bound.high is None or held(of, False, path, bound.high + 1), name(path)


@pytest.mark.parametrize("seconds", [-(2**62), -1, 253_402_300_800, 2**62])
def test_times_outside_the_calendar_are_refused(seconds: int) -> None:
    request = host_pb2.CordonRequest(name="h")
    request.start.seconds = seconds
    with pytest.raises(InvalidInput, match="start: must be a time from 1970 to 8999"):
        bounds.check(request)
    drain = host_pb2.DrainRequest(name="h")
    drain.deadline.seconds = 2**62
    with pytest.raises(InvalidInput, match=r"deadline: must be at most 3,650 days"):
        bounds.check(drain)


def test_a_host_s_clock_that_is_off_costs_no_exit() -> None:
    said = agent_pb2.SessionRequest()
    said.exit_report.exit.end_time.seconds = 2**61
    said.exit_report.exit.message = "x" * 50_000
    said.exit_report.stderr_tail.extend(["y" * 9_000 + "end"] * 60)
    bounds.check(said, from_host=True)
    assert said.exit_report.exit.end_time.ToDatetime().year == 8999
    assert said.exit_report.exit.message.endswith("x…")
    assert len(said.exit_report.stderr_tail) == 50
    assert all(line.endswith("end") and len(line) == 4_096 for line in said.exit_report.stderr_tail)


def test_every_row_of_the_table_is_of_a_field() -> None:
    names = {path[-1].name for _, _, path in ALL} | {
        path[-1].full_name.removeprefix("holdfast.v1.") for _, _, path in ALL
    }
    assert set(field_bounds.TABLE) - names == set()
    declared = {
        field.full_name.removeprefix("holdfast.v1.") for of, _ in received() for _, field in walked_whole(of, set())
    }
    assert (field_bounds.UNREAD | set(field_bounds.ELSEWHERE)) - declared == set()


def walked_whole(of: Descriptor, seen: set[str]) -> Iterator[tuple[Descriptor, FieldDescriptor]]:
    for field in of.fields:
        yield of, field
        if field.message_type is not None and field.message_type.full_name not in seen:
            seen.add(field.message_type.full_name)
            yield from walked_whole(field.message_type, seen)


def test_fields_that_a_job_is_not_submitted_with_change_nothing() -> None:
    wanted = job_pb2.CustomJob(display_name="x")
    pool = wanted.job_spec.worker_pool_specs.add(replica_count=1)
    pool.process_spec.command.append("true")
    read = spec.job_from_proto(wanted)
    shown = job_pb2.CustomJob()
    shown.CopyFrom(wanted)
    for field in job_pb2.CustomJob.DESCRIPTOR.fields:
        if f"CustomJob.{field.name}" in field_bounds.UNREAD:
            fill(shown, field)
    assert shown != wanted
    assert spec.job_from_proto(shown) == read


def fill(message: Any, field: FieldDescriptor) -> None:
    if bounds.is_map(field):
        getattr(message, field.name)["a"] = "b"
    elif bounds.is_list(field) and field.message_type is None:
        getattr(message, field.name).append("x")
    elif bounds.is_list(field):
        getattr(message, field.name).add()
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        setattr(message, field.name, "x")
    else:
        setattr(message, field.name, 1)


def test_every_text_and_list_of_a_job_file_has_a_bound() -> None:
    unbounded = list(without_bound(spec.json_schema(), "job"))
    assert unbounded == []


def without_bound(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, list):
        for index, each in enumerate(schema):
            yield from without_bound(each, f"{path}[{index}]")
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind == "string" and not schema.keys() & {"maxLength", "enum", "const", "pattern", "format"}:
        yield path
    if kind == "array" and "maxItems" not in schema:
        yield path
    if (
        kind == "object"
        and schema.get("additionalProperties") not in (None, False)
        and "maxProperties" not in schema
    ):
        yield path
    for key, value in schema.items():
        yield from without_bound(value, f"{path}.{key}")
