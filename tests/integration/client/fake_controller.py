"""A controller for tests: real gRPC over real mutual TLS, and a history that the test writes by hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import trustme
from tests.integration.client.fake_services.hangs import FakeHangs
from tests.integration.client.fake_services.hosts import FakeHosts
from tests.integration.client.fake_services.jobs import FakeJobs

from holdfast._security import tls
from holdfast.settings import ClientSettings
from holdfast.v1 import hang_pb2_grpc, host_pb2_grpc, job_pb2_grpc


@dataclass(frozen=True)
class Pki:
    """PEM files of a throw-away cluster."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Pki:
        folder.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        for name, identity in (("controller", tls.SERVER_NAME), ("user", "user@example.org")):
            cert = authority.issue_cert(identity)
            cert.private_key_pem.write_to_path(str(folder / f"{name}.key"))
            cert.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        return cls(folder)

    def files(self, name: str) -> tls.TlsFiles:
        return tls.TlsFiles(self.folder / "ca.pem", self.folder / f"{name}.pem", self.folder / f"{name}.key")


class FakeController(FakeJobs, FakeHosts, FakeHangs):
    """Listens, and answers from its history."""

    def __init__(self, pki: Pki) -> None:
        super().__init__()
        self.pki = pki
        self.port = 0

    async def start(self) -> None:
        self._server = grpc.aio.server()
        job_pb2_grpc.add_JobServiceServicer_to_server(self, self._server)
        host_pb2_grpc.add_HostServiceServicer_to_server(self, self._server)
        hang_pb2_grpc.add_HangServiceServicer_to_server(self, self._server)
        credentials = tls.server_credentials(self.pki.files("controller"))
        self.port = self._server.add_secure_port(f"127.0.0.1:{self.port}", credentials)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=None)

    def settings(self) -> ClientSettings:
        user = self.pki.files("user")
        return ClientSettings(f"127.0.0.1:{self.port}", user.ca, user.cert, user.key)

    def write_settings(self, path: Path) -> Path:
        path.write_text(
            f'controller = "127.0.0.1:{self.port}"\nca = "{self.pki.folder}/ca.pem"\n'
            f'cert = "{self.pki.folder}/user.pem"\nkey = "{self.pki.folder}/user.key"\n'
        )
        return path
