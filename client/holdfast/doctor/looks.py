"""Gathers the facts that clients and hosts have in common. Reads and connects; changes nothing."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import time
from dataclasses import replace
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from holdfast._base.addresses import parse as parse_addresses
from holdfast._base.dataclass import dataclass
from holdfast._base.proto_values import short_name
from holdfast._base.rpc_status import from_rpc_error
from holdfast._security import certificate
from holdfast._security.tls import SERVER_NAME, TlsFiles, channel_credentials
from holdfast.doctor.certificates import CertificateFacts
from holdfast.doctor.reach import TIME_KEY, ReachFacts, Step
from holdfast.errors import ConfigError
from holdfast.v1 import access_pb2, access_pb2_grpc

_OPTIONS = (("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1))
CONNECT_S = 5.0
"""For each step of the way to the controller."""


def certificates(files: TlsFiles, *, renews: bool, wanted: str = "") -> CertificateFacts:
    """Read the facts of the three files. ``wanted``: KIND/NAME of the party that the settings name."""
    paths = (files.ca, files.cert, files.key)
    unreadable, denied = [], False
    for path in paths:
        try:
            path.read_bytes()
        except OSError as error:
            unreadable.append((str(path), error.strerror or str(error)))
            denied |= isinstance(error, PermissionError)
    ca, cert, key_path = map(os.path.normpath, paths)
    facts = CertificateFacts(ca, cert, key_path, time.time(), own_uid=os.geteuid(), renews=renews, wanted=wanted)
    if unreadable:
        return replace(facts, unreadable=tuple(unreadable), denied=denied)
    key = os.stat(files.key)
    facts = replace(facts, key_mode=stat.S_IMODE(key.st_mode), key_owner=key.st_uid, ca_ends_at=_ca_end(files.ca))
    try:
        found = certificate.read(files.cert)
        begins_at, ends_at = certificate.validity(files.cert.read_text())
    except (ConfigError, ValueError) as error:
        return replace(facts, problem=str(error))
    pairs, signed = _belonging(files)
    facts = replace(facts, identity=str(found.identity), pairs=pairs, signed=signed)
    return replace(facts, begins_at=begins_at, ends_at=ends_at, renew_at=found.renew_at)


def reach_any(controller: str, files: TlsFiles) -> tuple[str, ReachFacts]:
    """The first of the addresses that a call gets to, else the first of all; and how far the call gets."""
    tried = [(each, reach(each, files)) for each in parse_addresses(controller, "controller")]
    return next((found for found in tried if found[1].failed is None), tried[0])


def reach(address: str, files: TlsFiles) -> ReachFacts:
    """How far a call to the controller gets."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:
        return ReachFacts(address, Step.NAME, _words(error))
    addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    try:
        link = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S)
    except OSError as error:
        return ReachFacts(address, Step.TCP, _words(error), addresses)
    try:
        with _client_side(files).wrap_socket(link, server_hostname=SERVER_NAME):
            pass
    except (OSError, ConfigError) as error:
        return ReachFacts(address, Step.TLS, _words(error), addresses, mute=isinstance(error, TimeoutError))
    finally:
        link.close()
    return _call(address, files, addresses)


@dataclass(frozen=True, slots=True)
class Caller:
    """Our identity as the controller sees it; ``problem`` is set if it gave none."""

    name: str = ""
    roles: tuple[str, ...] = ()
    problem: str = ""
    fix: str = ""


def caller(address: str, files: TlsFiles) -> Caller:
    """Ask the controller who we are, as a user."""
    try:
        with grpc.secure_channel(address, channel_credentials(files), _OPTIONS) as channel:
            stub = access_pb2_grpc.AccessServiceStub(channel)
            user = stub.GetCaller(access_pb2.GetCallerRequest(), timeout=CONNECT_S).user
    except grpc.RpcError as error:
        found = from_rpc_error(error, endpoint=address)
        return Caller(problem=found.message, fix=found.fix)
    roles = [f"{short_name(access_pb2.Role, grant.role).lower()} in {grant.project}" for grant in user.grants]
    if user.configured_admin:
        roles.append("admin by the controller's settings")
    return Caller(user.name, tuple(roles))


def _call(address: str, files: TlsFiles, addresses: tuple[str, ...]) -> ReachFacts:
    try:
        with grpc.secure_channel(address, channel_credentials(files), _OPTIONS) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            check(health_pb2.HealthCheckRequest(), timeout=CONNECT_S)  # the handshake is not part of the trip
            sent, sent_at = time.monotonic(), time.time()
            _, call = check.with_call(health_pb2.HealthCheckRequest(), timeout=CONNECT_S)
            trip_s = time.monotonic() - sent
    except (grpc.RpcError, ConfigError) as error:
        problem = error if isinstance(error, ConfigError) else from_rpc_error(error, endpoint=address)
        return ReachFacts(address, Step.CALL, str(problem), addresses)
    told = dict(call.initial_metadata() or ()).get(TIME_KEY)
    try:
        theirs = float(told) if told is not None else None
    except ValueError:
        theirs = None
    difference = None if theirs is None else theirs - (sent_at + trip_s / 2)
    return ReachFacts(address, None, "", addresses, trip_s, difference, trip_s / 2)


def _belonging(files: TlsFiles) -> tuple[str, str]:
    """(Why the key isn't the certificate's, why the CA hasn't signed it); each empty where all is well.

    A handshake in memory, in which the server asks for the certificate: only so does the standard library verify.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    # Else the server's verdict would come only with the first byte that is read.
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        for side in (server, client):
            side.load_cert_chain(files.cert, files.key)
    except (ssl.SSLError, OSError) as error:
        return f"{files.key} is not the key of {files.cert}: {_words(error)}", ""
    try:
        server.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError) as error:
        return "", f"{files.ca} is no CA: {_words(error)}"
    server.verify_mode = ssl.CERT_REQUIRED
    try:
        _shake_hands(server, client)
    except ssl.SSLCertVerificationError as error:
        if "expired" not in error.verify_message and "not yet valid" not in error.verify_message:
            return "", f"{files.cert} is not of the CA in {files.ca}: {error.verify_message}"
    return "", ""


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raises ``SSLCertVerificationError`` where the server refuses the client."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(10):
        left = []
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                left.append(end)
        if not left:
            return


def _ca_end(path: Path) -> float:
    try:
        return certificate.validity(path.read_text())[1]
    except (OSError, ValueError):
        return 0.0


def _client_side(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(files.ca)
    context.load_cert_chain(files.cert, files.key)
    return context


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_S:g} s"
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error) or type(error).__name__
