"""A dev cluster called without any of the SDK's kindness: bare stubs, and what a refused call says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.e2e.cli_cluster import DevCluster

from holdfast import settings
from holdfast._security import tls
from holdfast._security.tls import TlsFiles
from holdfast.v1 import agent_pb2_grpc, host_pb2_grpc, job_pb2, job_pb2_grpc, spec_pb2

Stubs = tuple[Any, Any, Any]
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def files(cluster: DevCluster) -> TlsFiles:
    return TlsFiles(*(cluster.dir / "pki" / name for name in ("ca.pem", "user.pem", "user.key")))


@contextlib.contextmanager
def stubs(cluster: DevCluster, credentials: TlsFiles | None = None) -> Iterator[Stubs]:
    """The bare services, without any of the SDK's kindness."""
    target = settings.load(cluster.dir / "client.toml").controller
    options = [("grpc.ssl_target_name_override", tls.SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(target, tls.channel_credentials(credentials or files(cluster)), options) as channel:
        yield (
            job_pb2_grpc.JobServiceStub(channel),
            host_pb2_grpc.HostServiceStub(channel),
            agent_pb2_grpc.AgentServiceStub(channel),
        )


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str, str, dict[str, str]]:
    """(code, reason, sentence, problem of each field) of a call that must fail; streams are read."""
    with pytest.raises(grpc.RpcError) as caught:
        list(answer) if hasattr(answer := call(), "__next__") else None
    error = caught.value
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    rich = rpc_status.from_call(error)
    for detail in rich.details if rich else ():
        if not detail.Unpack(info):
            detail.Unpack(bad)
    fields = {violation.field: violation.description for violation in bad.field_violations}
    return error.code(), info.reason, error.details() or "", fields


def job_of(**pool: Any) -> job_pb2.CustomJob:
    """A good job of one worker, but for what ``pool`` says."""
    good: dict[str, Any] = {"replica_count": 1, "process_spec": spec_pb2.ProcessSpec(command=["true"])}
    spec = spec_pb2.CustomJobSpec(worker_pool_specs=[spec_pb2.WorkerPoolSpec(**(good | pool))])
    return job_pb2.CustomJob(display_name="bad", job_spec=spec)


def process(**fields: Any) -> spec_pb2.ProcessSpec:
    return spec_pb2.ProcessSpec(**({"command": ["true"]} | fields))
