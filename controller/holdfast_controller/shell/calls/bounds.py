"""Bounds on every field of every message that a user or a host sends: one table, applied before any handler.

A field that the table doesn't name has the bound of its type, so a new one has a bound before anybody thinks of it.
What a user sends beyond a bound is refused with the field's path. So is what names something in a host's message;
what only explains is cut there, since an exit must not be lost for the length of its last line.

``bytes`` are those of each text in a field, ``items`` its entries. Fields in ``UNREAD`` are not read by any handler;
those in ``ELSEWHERE`` have their bounds where the note says.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from holdfast._daemon import log
from holdfast.errors import InvalidInput, Violation
from holdfast.v1 import agent_pb2

MESSAGE_BYTES = 4 << 20
"""Of one message over gRPC."""
STRING_BYTES = 1_024
ITEMS = 1_000
EXITS_TOGETHER = 64
LONGEST_S = 3_650 * 86_400
EARLIEST_S, LATEST_S = 0, 221_845_391_999
"""1970 to the end of the year 8999: far enough from any calendar's end that times can be added to."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one field may hold."""

    bytes: int = STRING_BYTES
    items: int = ITEMS
    cut: str = ""
    """Which end is kept of what is too long: ``start`` or ``end``. Refused when empty."""
    low: int = 0
    high: int | None = None
    """Least and greatest whole number; without ``high`` that of its type."""
    whole: int | None = None
    """Bytes of a message with all that is in it."""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """A piece of a reading that is left out of a host's stream, since it breaks a bound: it ends the reading."""

    id: int
    problem: str
    size: int


EXPLAINS = Bound(4_000, cut="start")
NAME = Bound(253)
INVENTORY = Bound(whole=256 << 10)
"""Eight GPUs with all their faults take four thousand bytes."""

TABLE: dict[str, Bound] = {
    # Names of fields with one meaning everywhere.
    "id": Bound(128),
    "job_id": Bound(128),
    "request_id": Bound(128, fix="use a UUID"),
    # Looked up: what is too long for a name is not found, and no name can be given that is.
    "name": Bound(16 << 10),
    "host": NAME,
    "user": NAME,
    "worker": NAME,
    "project": NAME,
    "digest": Bound(128),
    "problem": EXPLAINS,
    # Users
    "ListJobsRequest.filter": Bound(16_384),
    "page_size": Bound(high=1_000, fix="use 1 to 1000"),
    "page_token": Bound(1_024, fix="list again without"),
    "ListJobsRequest.page_token": Bound(32, fix="list again without"),
    "ReadAuditRequest.limit": Bound(high=1_000, fix="use 1 to 1000"),
    "StreamLogsRequest.workers": Bound(253, 100_000),
    "StreamLogsRequest.ranks": Bound(items=100_000),
    "StreamLogsRequest.streams": Bound(items=2),
    "StreamLogsRequest.contains": Bound(1_000, fix="search for a part of it"),
    "TakeStacksRequest.native_ranks": Bound(items=100_000),
    "WriteTerminalRequest.data": Bound(4_000, fix="send it in several calls"),
    "WriteTerminalRequest.rows": Bound(high=10_000),
    "WriteTerminalRequest.columns": Bound(high=10_000),
    "OpenShellRequest.command": Bound(128 << 10, 1_000),
    "OpenShellRequest.rows": Bound(high=10_000),
    "OpenShellRequest.columns": Bound(high=10_000),
    "OpenShellRequest.term": Bound(64),
    "WriteShellRequest.shell": Bound(64),
    "WriteShellRequest.data": Bound(32_000, fix="send it in several calls"),
    "WriteShellRequest.rows": Bound(high=10_000),
    "WriteShellRequest.columns": Bound(high=10_000),
    "WatchJobRequest.cursor": Bound(low=-(2**63)),
    "GetHangEvidenceRequest.number": Bound(low=-(2**31)),
    **{f"QuotaLimits.{name}": Bound(low=-1) for name in ("gpus", "running_jobs", "waiting_jobs", "max_priority")},
    "Reservation.hosts": Bound(253, 10_000),
    "Reservation.labels": Bound(63, 64),
    "UncordonRequest.gpus": Bound(253, 256),
    "AddUserRequest.accounts": Bound(253, 16),
    "MapUserRequest.accounts": Bound(253, 16),
    "SetMotdRequest.text": Bound(16 << 10, fix="say where the rest is to be found"),
    "SetSecretRequest.value": Bound(64 << 10, fix="keep it in a file on the hosts, and name that in the job"),
    "RelayRequest.target": Bound(16 << 10),
    "RelayRequest.headers": Bound(1_024, 16),
    "RelayRequest.body": Bound(1 << 20),
    "UploadBundleRequest.chunk": Bound(1 << 20),
    # Anybody
    "EnrolRequest.token": Bound(256),
    "EnrolRequest.request": Bound(16 << 10),
    "SignInRequest.id_token": Bound(20 << 10),
    "SignInRequest.request": Bound(16 << 10),
    "RenewRequest.certificate": Bound(16 << 10),
    "RenewRequest.request": Bound(16 << 10),
    # Hosts
    "Hello.agent_version": Bound(255),
    "Hello.boot_id": Bound(255),
    "Hello.address": Bound(255),
    "Hello.labels": Bound(63, 64),
    "Hello.workers": Bound(items=4_096),
    "Hello.inventory": INVENTORY,
    "Heartbeat.inventory": INVENTORY,
    "Heartbeat.gpu_problem": EXPLAINS,
    "Inventory.gpus": Bound(items=256),
    "Inventory.gpu_problem": EXPLAINS,
    "Inventory.traits": Bound(128, 64),
    "Inventory.accounts_problem": EXPLAINS,
    "Inventory.containers_problem": EXPLAINS,
    "Gpu.uuid": Bound(255),
    "Gpu.model": Bound(255),
    "Gpu.repaired_by": EXPLAINS,
    "Gpu.faults": Bound(items=64),
    "GpuFault.cause": Bound(255),
    "WorkerReport.ranks": Bound(items=1_024),
    "WorkerReport.gpus": Bound(255, 256),
    "WorkerReport.silent_peers": Bound(items=4_096),
    "WorkerReport.message": EXPLAINS,
    "RankBinding.cpus": EXPLAINS,
    "ExitReports.reports": Bound(items=EXITS_TOGETHER),
    "ExitReport.stderr_tail": Bound(4_096, 50, cut="end"),
    "Exit.message": EXPLAINS,
    "Exit.raised": EXPLAINS,
    "FeatureReport.ranks": Bound(items=1_024),
    "FeatureReport.gpus": Bound(items=256),
    "FeatureReport.declared_idle": Bound(cut="start"),
    "RankFeatures.wchan": Bound(cut="start"),
    "RankFeatures.mount": Bound(4_096, cut="start"),
    "RankFeatures.hardware": Bound(cut="start"),
    "Wait.what": Bound(cut="start"),
    "Wait.place": Bound(cut="start"),
    "ArchiveReport.problem": Bound(500, cut="start"),
    "InputTaken.problem": Bound(500, cut="start"),
    "OutputDeleted.problem": Bound(500, cut="start"),
    "TransferChunk.data": Bound(4 << 20),
    "EvidenceReport.content": Bound(3 << 20),
    "EvidenceReport.samples": Bound(5 << 19),
    "EvidenceReport.dumps": Bound(1 << 20),
    "EvidenceReport.recording": Bound(1 << 20),
    "SeriesReport.block": Bound(1 << 20),
}
"""By field: its message and name, or its name alone."""

UNREAD = frozenset(
    f"CustomJob.{name}"
    for name in (
        *("id", "state", "create_time", "start_time", "end_time", "update_time", "error", "attempt", "generation"),
        *("wait_reason", "workers", "recoveries", "owner", "cursor", "hangs", "held_until", "health", "account"),
        *("summary", "waits_for"),
        *("archive_problems", "gpu_count", "host_count", "recovery_count", "hang_count", "exit_groups"),
    )
) | {"Exit.late_exit", "Gpu.job_id"}
"""What a job is shown with and is not submitted with; what a host can't know."""
ELSEWHERE = {
    f"CustomJob.{name}": "the job file's model: holdfast.spec.models; 1 MiB in all"
    for name in ("display_name", "job_spec", "labels", "annotations", "project", "encryption_spec")
}


def bound_of(field: FieldDescriptor) -> Bound:
    """The bound on a field of a message that is received."""
    return TABLE.get(_named(field)) or TABLE.get(field.name) or Bound()


def check(message: Message, *, from_host: bool = False) -> None:
    """Hold a message to its bounds; in one from a host, cut what only explains. Raises ``InvalidInput``."""
    wrong = list(_exceeded(message, "", from_host))
    if wrong:
        raise InvalidInput(wrong[:10], what="What the host says of itself" if from_host else "The request")


async def each(messages: AsyncIterator[Any], *, from_host: bool) -> AsyncIterator[Any]:
    """Messages of a stream within their bounds. Raises ``InvalidInput``; a host's later ones are left out instead.

    An agent does not get rid of a report that ends its session: it would send it again in the next. Of exits that come
    together those within their bounds are kept. A piece of a reading, for which a user waits, becomes ``Refused``.
    """
    first = True
    async for message in messages:
        try:
            check(message, from_host=from_host)
        except InvalidInput as error:
            if first or not from_host:
                raise
            kind = message.WhichOneof("message")
            log.warning("host.message_refused", kind=kind, error=str(error))
            if kind == "chunk":
                yield Refused(message.chunk.id, "; ".join(map(str, error.violations)), message.ByteSize())
            if kind == "exit_reports" and (kept := list(filter(_is_within, message.exit_reports.reports))):
                yield agent_pb2.SessionRequest(exit_reports=agent_pb2.ExitReports(reports=kept[:EXITS_TOGETHER]))
            continue
        first = False
        yield message


def _is_within(message: Message) -> bool:
    return next(_exceeded(message, "", True), None) is None


def _exceeded(message: Message, path: str, from_host: bool) -> Iterator[Violation]:
    # Hosts send thousands of messages a second, and nothing in one is larger than itself.
    small = from_host and message.ByteSize() <= _least(message.DESCRIPTOR)
    walked = _fields(message.DESCRIPTOR, from_host, small)
    for field, value in message.ListFields() if walked else ():
        if (found := walked.get(field.number)) is None:
            continue
        repeated, in_map, bound = found
        here = f"{path}{field.json_name}"
        if in_map:
            yield from _in_map(value, here, bound)
        elif repeated:
            yield from _in_list(message, field, here, bound, from_host)
        elif field.message_type is not None:
            yield from _in_message(value, here, bound, from_host)
        elif problem := _problem(value, bound, from_host):
            if from_host and bound.cut:
                setattr(message, field.name, _cut(value, bound))
            else:
                yield Violation(here, problem, bound.fix)


def _in_map(values: Any, path: str, bound: Bound) -> Iterator[Violation]:
    if len(values) > bound.items:
        yield Violation(path, f"has {len(values):,} entries; at most {bound.items:,} are allowed", bound.fix)
        return
    for key, value in values.items():
        if problem := _problem(key, bound, False) or _problem(value, bound, False):
            yield Violation(path, f"holds an entry that {problem}", bound.fix)
            return


def _in_list(
    message: Message, field: FieldDescriptor, path: str, bound: Bound, from_host: bool
) -> Iterator[Violation]:
    values = getattr(message, field.name)
    if len(values) > bound.items:
        if not (from_host and bound.cut):
            yield Violation(path, f"has {len(values):,} entries; at most {bound.items:,} are allowed", bound.fix)
            return
        kept = values[-bound.items :] if bound.cut == "end" else values[: bound.items]
        del values[:]
        values.extend(kept)
    least = _untimed(field.message_type) if from_host and field.message_type and bound.whole is None else -1
    for index, value in enumerate(values):
        if field.message_type is not None:
            if value.ByteSize() <= least:
                continue
            yield from _in_message(value, f"{path}[{index}]", bound, from_host)
        elif problem := _problem(value, bound, from_host):
            if from_host and bound.cut:
                values[index] = _cut(value, bound)
            else:
                yield Violation(path, problem, bound.fix)
                return


def _in_message(message: Message, path: str, bound: Bound, from_host: bool) -> Iterator[Violation]:
    if bound.whole is not None and (size := message.ByteSize()) > bound.whole:
        yield Violation(path, f"has {size:,} bytes; at most {bound.whole:,} are allowed", bound.fix)
        return
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            yield from _in_range(message, path, EARLIEST_S, LATEST_S, "must be a time from 1970 to 8999", from_host)
        case "google.protobuf.Duration":
            said = f"must be at most {LONGEST_S // 86_400:,} days"
            yield from _in_range(message, path, -LONGEST_S, LONGEST_S, said, from_host)
        case _:
            yield from _exceeded(message, f"{path}.", from_host)


def _in_range(message: Any, path: str, low: int, high: int, said: str, from_host: bool) -> Iterator[Violation]:
    if low <= message.seconds <= high and abs(message.nanos) < 1_000_000_000:
        return
    if from_host:
        message.seconds, message.nanos = min(max(message.seconds, low), high), 0
    else:
        yield Violation(path, said)


def _problem(value: Any, bound: Bound, from_host: bool) -> str:
    """The reason why one value is refused, in words that follow the field's path; empty if it is not."""
    if isinstance(value, (str, bytes)):
        size = len(value) if isinstance(value, bytes) or value.isascii() else len(value.encode(errors="replace"))
        return f"has {size:,} bytes; at most {bound.bytes:,} are allowed" if size > bound.bytes else ""
    if isinstance(value, int) and not isinstance(value, bool) and not from_host:
        beyond = value < bound.low or (bound.high is not None and value > bound.high)
        return f"{value} is out of range" if beyond else ""
    return ""


def _cut(value: Any, bound: Bound) -> Any:
    """The kept end of a text, with a sign that it is no whole one."""
    if isinstance(value, bytes):
        return value[-bound.bytes :] if bound.cut == "end" else value[: bound.bytes]
    data, kept = value.encode(errors="replace"), bound.bytes - 3
    if bound.cut == "end":
        return data[-bound.bytes :].decode(errors="ignore")
    return data[:kept].decode(errors="ignore") + "…"


@functools.cache
def _fields(of: Descriptor, from_host: bool, small: bool = False) -> dict[int, tuple[bool, bool, Bound]]:
    """The fields that are walked, by number: whether it is a list, whether it is a map, and its bound.

    In a ``small`` message only those with a time in them, whose range its size says nothing of.
    """
    walked = _WALKED if from_host else _WALKED | _NUMBERS
    return {
        field.number: (is_list(field), is_map(field), bound_of(field))
        for field in of.fields
        if not skipped(field)
        and (field.message_type is not None or field.cpp_type in walked or is_list(field))
        and not (small and not any(each.full_name in _TIMES for each in _within(field)))
    }


@functools.cache
def _least(of: Descriptor) -> int:
    """The bytes of a message from a host up to which no field of it, or in it, can hold too many bytes or entries."""
    found = MESSAGE_BYTES
    for each in (of, *(each for field in of.fields if not skipped(field) for each in _within(field))):
        for number, (repeated, in_map, bound) in _fields(each, True).items():
            found = min(found, bound.items if repeated else found, bound.whole or found)
            if in_map or each.fields_by_number[number].cpp_type == FieldDescriptor.CPPTYPE_STRING:
                found = min(found, bound.bytes)
    return found


@functools.cache
def _untimed(of: Descriptor) -> int:
    """The same for a message without times, in which nothing is walked then; else -1."""
    return _least(of) if not _fields(of, True, True) else -1


def _within(field: FieldDescriptor) -> list[Descriptor]:
    """The messages that a field may hold, and that these may hold, each once."""
    found: dict[str, Descriptor] = {}
    left = [field]
    while left:
        each = left.pop()
        if is_map(each) or (of := each.message_type) is None or of.full_name in found:
            continue
        found[of.full_name] = of
        left += [inner for inner in of.fields if not skipped(inner)]
    return list(found.values())


_TIMES = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_WALKED = frozenset({FieldDescriptor.CPPTYPE_STRING})
_NUMBERS = {getattr(FieldDescriptor, f"CPPTYPE_{name}") for name in ("INT32", "INT64", "UINT32", "UINT64")}


def skipped(field: FieldDescriptor) -> bool:
    """Whether a field is unread here, or bounded elsewhere."""
    return _named(field) in UNREAD or _named(field) in ELSEWHERE


def _named(field: FieldDescriptor) -> str:
    """The field's message and name, as in the table."""
    return field.full_name.removeprefix("holdfast.v1.")


_REPEATED = 3
"""Label of a repeated field, as protobuf before release 6 tells it."""


def is_list(field: FieldDescriptor) -> bool:
    """Whether it is repeated, as maps are."""
    found = getattr(field, "is_repeated", None)
    return bool(getattr(field, "label", 0) == _REPEATED if found is None else found)


def is_map(field: FieldDescriptor) -> bool:
    """Whether it is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry
