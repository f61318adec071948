"""The certificates do what they promise on a real link: gRPC server and clients over mutual TLS on loopback."""

from __future__ import annotations

import datetime
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from holdfast._base.identity import Identity, Kind
from holdfast._security import pki, tls
from holdfast._security.tls import SERVER_NAME, TlsFiles
from holdfast.errors import ConfigError, HoldfastError, Unauthenticated

CONTROLLER = Identity("lab", Kind.CONTROLLER, "controller")
HOST = Identity("lab", Kind.HOST, "host-0")
USER = Identity("lab", Kind.USER, "ann@lab")
METHOD = "/test.Echo/WhoAmI"

pytestmark = pytest.mark.anyio


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    directory = tmp_path / "pki"
    directory.mkdir()
    pki.create_ca("lab", directory)
    return directory


async def who_am_i(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
    try:
        return str(tls.caller(context)).encode()
    except HoldfastError as error:
        return error.reason.encode()


@asynccontextmanager
async def serving(files: TlsFiles) -> AsyncIterator[int]:
    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(who_am_i)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"WhoAmI": handler}),))
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(files))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


async def ask(port: int, credentials: grpc.ChannelCredentials, name: str | None = SERVER_NAME) -> str:
    options = [("grpc.ssl_target_name_override", name)] if name else []
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        reply = await call(b"", timeout=20, wait_for_ready=False)
        return reply.decode()


async def refused(port: int, credentials: grpc.ChannelCredentials) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await ask(port, credentials)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


def controller(ca: Path) -> TlsFiles:
    return pki.issue(ca, CONTROLLER, ca, "controller", server=True)


@pytest.mark.parametrize("who", [CONTROLLER, HOST, USER])
async def test_caller_is_the_identity_in_the_certificate(ca: Path, who: Identity) -> None:
    files = pki.issue(ca, who, ca, "caller")
    async with serving(controller(ca)) as port:
        assert await ask(port, tls.channel_credentials(files)) == str(who)


@pytest.mark.parametrize("name", ["localhost", None])
async def test_controller_is_also_known_by_its_loopback_names(ca: Path, name: str | None) -> None:
    files = pki.issue(ca, USER, ca, "caller")
    async with serving(controller(ca)) as port:
        assert await ask(port, tls.channel_credentials(files), name) == str(USER)


async def test_controller_is_recognised_by_the_certificate_it_serves_with(ca: Path) -> None:
    files = controller(ca)
    async with serving(files) as port:
        assert await ask(port, tls.channel_credentials(files)) == str(CONTROLLER)


async def test_certificate_of_another_ca_is_refused(ca: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pki.create_ca("lab", other)
    stranger = pki.issue(other, USER, other, "caller")
    async with serving(controller(ca)) as port:
        await refused(port, tls.channel_credentials(TlsFiles(ca / "ca.pem", stranger.cert, stranger.key)))


async def test_client_refuses_a_controller_of_another_ca(ca: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pki.create_ca("lab", other)
    mine = pki.issue(ca, USER, ca, "caller")
    async with serving(controller(other)) as port:
        await refused(port, tls.channel_credentials(mine))


async def test_expired_certificate_is_refused(ca: Path) -> None:
    files = pki.issue(ca, USER, ca, "caller", lifetime=datetime.timedelta(minutes=-1))
    assert pki.remaining(files.cert) < datetime.timedelta(0)
    async with serving(controller(ca)) as port:
        await refused(port, tls.channel_credentials(files))


async def test_caller_without_certificate_is_refused(ca: Path) -> None:
    async with serving(controller(ca)) as port:
        await refused(port, grpc.ssl_channel_credentials((ca / "ca.pem").read_bytes()))


async def test_client_refuses_a_host_that_serves(ca: Path) -> None:
    mine = pki.issue(ca, USER, ca, "caller")
    host = pki.issue(ca, HOST, ca, "host")
    async with serving(host) as port:
        await refused(port, tls.channel_credentials(mine))


async def test_certificate_without_identity_is_unauthenticated(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = trusted(authority, tmp_path, "server", SERVER_NAME)
    nobody = trusted(authority, tmp_path, "nobody", "somebody.example")
    async with serving(server) as port:
        assert await ask(port, tls.channel_credentials(nobody)) == Unauthenticated.reason


def trusted(authority: trustme.CA, directory: Path, name: str, host: str) -> TlsFiles:
    files = TlsFiles(directory / "ca.pem", directory / f"{name}.pem", directory / f"{name}.key")
    issued = authority.issue_cert(host)
    authority.cert_pem.write_to_path(str(files.ca))
    issued.cert_chain_pems[0].write_to_path(str(files.cert))
    issued.private_key_pem.write_to_path(str(files.key))
    return files


def test_only_the_controller_may_serve(ca: Path) -> None:
    with pytest.raises(ValueError, match="no controller"):
        pki.issue(ca, HOST, ca, "host", server=True)


def test_keys_are_private_and_nothing_else_is_left(ca: Path) -> None:
    controller(ca)
    assert sorted(p.name for p in ca.iterdir()) == ["ca.key", "ca.pem", "controller.key", "controller.pem"]
    assert {stat.S_IMODE(p.stat().st_mode) for p in ca.glob("*.key")} == {0o600}


def test_failed_write_leaves_no_temporary_file(ca: Path) -> None:
    (ca / "taken.key").mkdir()
    with pytest.raises(OSError):
        pki.issue(ca, USER, ca, "taken")
    assert sorted(p.name for p in ca.iterdir()) == ["ca.key", "ca.pem", "taken.key"]


def test_leaf_may_only_do_what_its_holder_needs(ca: Path) -> None:
    def load(files: TlsFiles) -> x509.Certificate:
        return x509.load_pem_x509_certificate(files.cert.read_bytes())

    def usages(certificate: x509.Certificate) -> set[x509.ObjectIdentifier]:
        return set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

    def names(certificate: x509.Certificate) -> list[str]:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return found.get_values_for_type(x509.DNSName)

    host, user = load(pki.issue(ca, HOST, ca, "host")), load(pki.issue(ca, USER, ca, "user"))
    assert (usages(user), names(user)) == ({ExtendedKeyUsageOID.CLIENT_AUTH}, [])
    assert usages(host) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    # Whoever looks for a controller, and knows its name, finds none in a host.
    assert names(host) == ["holdfast-host"]
    assert usages(load(controller(ca))) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    root = x509.load_pem_x509_certificate((ca / "ca.pem").read_bytes())
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    host.verify_directly_issued_by(root)
    assert host.not_valid_before_utc < datetime.datetime.now(datetime.UTC)


def test_leaf_never_outlives_its_ca(ca: Path) -> None:
    files = pki.issue(ca, USER, ca, "caller", lifetime=pki.CA_LIFETIME * 2)
    of_the_ca = pki.remaining(ca / "ca.pem")
    assert pki.remaining(files.cert) <= of_the_ca


@pytest.mark.parametrize("broken", ["ca.key", "ca.pem"])
def test_missing_or_broken_ca_is_named(ca: Path, broken: str) -> None:
    (ca / broken).write_text("no PEM")
    with pytest.raises(ConfigError, match=broken):
        pki.issue(ca, USER, ca, "caller")
    (ca / broken).unlink()
    with pytest.raises(ConfigError, match=f"Cannot read .*{broken}"):
        pki.issue(ca, USER, ca, "caller")
