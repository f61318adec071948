"""Asks the controller, as a user, whether it and its hosts are ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast._base.proto_values import full_name, seconds, short_name
from holdfast._security import tls
from holdfast._security.tls import SERVER_NAME, TlsFiles
from holdfast.v1 import host_pb2, host_pb2_grpc

_OPTIONS = (
    ("grpc.ssl_target_name_override", SERVER_NAME),
    # The controller is on this machine and starts at this moment: ask often.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    # A proxy that the user's environment names is for the world outside.
    ("grpc.enable_http_proxy", 0),
)
READY_S = 60.0
"""Time for all that is started to be ready."""
CALL_S = 2.0
"""Time for one answer."""
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

"""Empty when ready, else what is missing."""


@contextmanager
def link(port: int, files: TlsFiles) -> Iterator[grpc.Channel]:
    """A channel to the controller on this machine."""
    credentials = tls.channel_credentials(files)
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, _OPTIONS) as channel:
        yield channel


def controller(channel: grpc.Channel) -> str:
    """Empty when the controller's health is SERVING, else what it says instead."""
    try:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
    except grpc.RpcError as error:
        return _what(error)
    serving: bool = reply.status == health_pb2.HealthCheckResponse.SERVING
    return (
        "" if serving else f"its health is {full_name(health_pb2.HealthCheckResponse.ServingStatus, reply.status)}"
    )


def hosts(channel: grpc.Channel, since: Mapping[str, float]) -> dict[str, str]:
    """Missing parts of each host that is not ready; empty when all are.

    ``since`` has the hosts that count, and when (seconds since the epoch) each must have been heard from after:
    of an agent that was killed a moment ago, the controller still thinks well.
    """
    try:
        reply = host_pb2_grpc.HostServiceStub(channel).ListHosts(host_pb2.ListHostsRequest(), timeout=CALL_S)
    except grpc.RpcError as error:
        return dict.fromkeys(since, _what(error))
    known = {host.name: host for host in reply.hosts}
    missing = {name: _missing(known.get(name), after) for name, after in since.items()}
    return {name: what for name, what in missing.items() if what}


def _missing(host: host_pb2.Host | None, after: float) -> str:
    if host is None:
        return "the controller has not heard of it"
    if host.state != host_pb2.HOST_STATE_READY:
        return f"it is {short_name(host_pb2.HostState, host.state)}"
    if seconds(host.last_seen) < after:
        return "the controller has not heard from it since it was started"
    return ""


def _what(error: grpc.RpcError) -> str:
    code: grpc.StatusCode = error.code()
    return "it does not answer" if code in _AWAY else f"it answers {code.name}: {error.details()}"
