"""A controller that lies: it answers every call of the contract with hostile words in every field of text."""

from __future__ import annotations

import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from grpc_status import rpc_status
from tests.integration.client.fake_controller import Pki
from tests.unit.hang.evidence.test_evidence import full

from holdfast._base.rpc_status import to_status
from holdfast._security import tls
from holdfast._session import hang_wire
from holdfast.errors import HoldfastError, InvalidInput, Violation
from holdfast.hang.evidence import evidence_json
from holdfast.v1 import (  # noqa: F401  # the pool knows what was imported
    access_pb2,
    bundle_pb2,
    cluster_pb2,
    enrolment_pb2,
    hang_pb2,
    host_pb2,
    job_pb2,
    secret_pb2,
)

FORGED = "FORGED"
"""No line of what is printed may begin with it."""
HOSTILE = (
    f"\x1b]0;title\x07\x1b]52;c;aGFjaw==\x1b\\\x1b[2J\x1b[6n\x1b[3A\x1bP1$r\x1b\\\x1b_x\x1b\\\x9b5n\x9d0;t\x9c\x00\x7f\x08"
    f"\r{FORGED} one\n{FORGED} two\r\n{FORGED} three\x0b{FORGED} four\x0c{FORGED} five\x85{FORGED} six"
    f"\u2028{FORGED} seven\u2029{FORGED} eight\x1b[1G{FORGED}\u202egnp\u2066x\u2069\u200f\u200b\u2060\ufeff\U000e0041"
    + " " * 120
    + FORGED
)
OUTPUT = b"\x1b[31mred\x1b[0m 10%\r20%\x1b[K\n" + HOSTILE.encode() + b"\n\xff\xfe\xc2\x9b6n\n"
"""Of a rank: its colours and its progress bar are welcome on a terminal."""
_TIMES = {"google.protobuf.Timestamp": 1_790_000_000, "google.protobuf.Duration": 90}
_ENUMS_KEPT = {"JobState": ("JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED", "JOB_STATE_CANCELLED")}
"""Ends: commands that follow a job must come to theirs."""


def method_of(path: str) -> MethodDescriptor:
    """The method that ``/package.Service/Method`` names."""
    _, service, name = path.split("/")
    return descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]


class Hostile:
    """Fills messages; each call of ``fill`` takes the next member of every oneof and of every enumeration."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)

    def fill(self, descriptor: Any, depth: int = 0) -> Message:
        """A message of that type with something in every field."""
        message = message_factory.GetMessageClass(descriptor)()
        if descriptor.full_name in _TIMES:
            message.seconds = _TIMES[descriptor.full_name]  # type: ignore[attr-defined]
            return message
        turn = next(self._turns[descriptor.full_name])
        chosen = {one.fields[turn % len(one.fields)].name for one in descriptor.oneofs}
        for field in descriptor.fields:
            if field.containing_oneof is None or field.name in chosen:
                self._set(message, field, depth)
        return message

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)[self._value(key)] = self._value(value)
        elif field.message_type is not None and depth < 7:
            part = self.fill(field.message_type, depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(part)
            else:
                getattr(message, field.name).CopyFrom(part)
        elif field.message_type is None:
            value = self._value(field)
            setattr(message, field.name, value) if not field.is_repeated else getattr(message, field.name).append(
                value
            )

    def _value(self, field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return _bytes(field)
            case FieldDescriptor.CPPTYPE_STRING:
                return "" if field.name == "next_page_token" else HOSTILE
            case FieldDescriptor.CPPTYPE_BOOL:
                return next(self._turns["bool"]) % 3 != 0
            case _:
                return 1

    def _enum(self, enum: EnumDescriptor) -> int:
        names = _ENUMS_KEPT.get(enum.name) or tuple(value.name for value in enum.values)
        return int(enum.values_by_name[names[next(self._turns[enum.full_name]) % len(names)]].number)


def _bytes(field: FieldDescriptor) -> bytes:
    holder = field.containing_type
    if holder is not None and (holder.name, field.name) in (
        ("TakeStacksResponse", "content"),
        ("GetHangEvidenceResponse", "content"),
    ):
        return hostile_evidence()
    return OUTPUT


def hostile_evidence() -> bytes:
    """Evidence as hosts send it, with hostile words wherever a program or a host writes."""
    data = json.loads(evidence_json.encode(full()))
    return hang_wire.pack(evidence_json.decode(json.dumps(_spoilt(data))))


def _spoilt(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: each if key in ("state", "tool") else _spoilt(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_spoilt(each) for each in value]
    return value + HOSTILE if isinstance(value, str) else value


class HostileController(grpc.GenericRpcHandler):
    """Real gRPC over mutual TLS. ``refuses`` makes every call fail, in hostile words too."""

    def __init__(self, pki: Pki) -> None:
        self.refuses = False
        self.called: set[str] = set()
        self._hostile = Hostile()
        self._lock = threading.Lock()
        self._streams: dict[str, int] = {}
        self._server = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        self.port = self._server.add_secure_port("127.0.0.1:0", tls.server_credentials(pki.files("controller")))
        self._server.start()

    def forget(self) -> None:
        """Streams begin anew."""
        self._streams.clear()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        method = method_of(details.method)
        self.called.add(method.name)
        parse: Callable[[bytes], Message] = message_factory.GetMessageClass(method.input_type).FromString
        write: Callable[[Message], bytes] = lambda message: message.SerializeToString()  # noqa: E731
        if method.client_streaming:
            return grpc.stream_unary_rpc_method_handler(
                lambda requests, context: self._one(method, context), parse, write
            )
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._many(method, context), parse, write
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._one(method, context), parse, write
        )

    def _one(self, method: MethodDescriptor, context: grpc.ServicerContext) -> Message:
        if self.refuses:
            context.abort_with_status(rpc_status.to_status(_refusal()))
        with self._lock:
            return self._hostile.fill(method.output_type)

    def _many(self, method: MethodDescriptor, context: grpc.ServicerContext) -> Iterator[Message]:
        before = self._streams.get(method.name, 0)
        self._streams[method.name] = before + 1
        if self.refuses or before >= 3:  # a stream that never ends by itself ends with a refusal
            context.abort_with_status(rpc_status.to_status(_refusal()))
        for number in range(40):
            with self._lock:
                message: Any = self._hostile.fill(method.output_type)
            if method.name == "WatchJob":
                message.cursor = number + 1
                if number < 39:
                    message.state = job_pb2.JOB_STATE_RUNNING
            yield message


def _refusal() -> Any:
    return to_rich(InvalidInput([Violation(HOSTILE, HOSTILE, HOSTILE)], what=HOSTILE))


def to_rich(error: HoldfastError) -> Any:
    return to_status(error)
