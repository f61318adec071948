"""Health and ListHosts over mutual TLS; a host is ready once its stand-in has written ``hello`` in its folder."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from holdfast._security import tls
from holdfast._security.tls import TlsFiles
from holdfast.v1 import host_pb2


def lister(directory: Path) -> grpc.GenericRpcHandler:
    """The one call that is answered: ``ListHosts``, of the hosts whose agents have said hello."""

    def list_hosts(request: host_pb2.ListHostsRequest, context: grpc.ServicerContext) -> host_pb2.ListHostsResponse:
        reply = host_pb2.ListHostsResponse()
        for hello in sorted(directory.glob("hosts/*/hello")):
            host = reply.hosts.add(name=hello.parent.name, state=host_pb2.HOST_STATE_READY)
            host.last_seen.FromNanoseconds(hello.stat().st_mtime_ns)
        return reply

    handler = grpc.unary_unary_rpc_method_handler(
        list_hosts, host_pb2.ListHostsRequest.FromString, host_pb2.ListHostsResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler("holdfast.v1.HostService", {"ListHosts": handler})


def main() -> None:
    path = Path(sys.argv[2])
    settings = tomllib.loads(path.read_text())
    if settings.get("fail"):
        sys.exit(f"the controller is told to fail: {settings['fail']}")
    base = path.parent
    files = TlsFiles(base / settings["ca"], base / settings["cert"], base / settings["key"])
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    checks = health.HealthServicer()
    checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_generic_rpc_handlers((lister(base),))
    server.add_secure_port(settings["listen"], tls.server_credentials(files))
    server.start()
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()
