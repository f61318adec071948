"""Every RPC that there is, from the descriptors, and a call of any of them."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

import holdfast.v1
from holdfast._base import rpc_status

WITHIN_S = 180.0


def all_methods() -> dict[str, MethodDescriptor]:
    """By SERVICE/METHOD, the service with its package."""
    names = [name for _, name, _ in pkgutil.iter_modules(holdfast.v1.__path__) if name.endswith("_pb2")]
    modules = [importlib.import_module(f"holdfast.v1.{name}") for name in names]
    files = [module.DESCRIPTOR for module in (*modules, health_pb2, reflection_pb2)]
    services = [service for file in files for service in file.services_by_name.values()]
    return {f"{service.full_name}/{method.name}": method for service in services for method in service.methods}


@dataclass(frozen=True)
class Answer:
    """How a call ended: its code, the sentence, and whether the controller itself said so."""

    code: grpc.StatusCode
    message: str = ""
    ours: bool = True


async def ask(channel: grpc.aio.Channel, path: str, method: MethodDescriptor, fields: dict[str, Any]) -> Answer:
    """Make one call; of a stream only the first answer is waited for."""
    request = message_factory.GetMessageClass(method.input_type)(**fields)
    reply = message_factory.GetMessageClass(method.output_type)
    forms = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    form = forms[method.client_streaming, method.server_streaming]
    call: Any = form(
        f"/{path}", request_serializer=type(request).SerializeToString, response_deserializer=reply.FromString
    )
    made = call(iter([request]) if method.client_streaming else request, timeout=WITHIN_S)
    try:
        if method.server_streaming:
            async for _ in made:
                break
        else:
            await made
    except grpc.aio.AioRpcError as error:
        return Answer(error.code(), error.details() or "", ours=rpc_status.is_ours(error))
    finally:
        made.cancel()
    return Answer(grpc.StatusCode.OK)
