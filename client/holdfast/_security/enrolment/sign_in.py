"""A user's certificate by the site's identity provider: the first one, and the next without a question if it allows.

A certificate of this kind is short-lived and never renewed by itself: the controller asks for the provider's word each
time. Where the provider gives a refresh token, it is kept beside the key (mode 0600) and gets that word.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast._base.proto_values import seconds
from holdfast._base.rpc_status import from_rpc_error
from holdfast._security import certificate
from holdfast._security.enrolment import files, identity_provider, pinning, requests
from holdfast._security.enrolment.enrol import Clock, Enrolled, check_clock, enrolled, write_identity
from holdfast._security.enrolment.identity_provider import ProviderInfo, Tell, Tokens
from holdfast._security.enrolment.renew import checked_cas
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError, Unauthenticated
from holdfast.v1 import enrolment_pb2, enrolment_pb2_grpc

REFRESH = "user.refresh"
"""File beside the certificate with the provider's refresh token."""


def sign_in(
    address: str, ca: bytes, directory: Path, tell: Tell, *, clock: Clock = time.time, ask: Callable[..., Tokens]
) -> Enrolled:
    """Have the user of this process sign in; write key, certificates and ``client.toml`` into ``directory``.

    ``address`` is the enrolment service's, ``ca`` the CAs that it is trusted by, in PEM. ``ask`` is
    ``identity_provider.sign_in``. Raises ``HoldfastError`` with what to do; nothing is written then.
    """
    tokens = ask(_provider(address, ca), tell)
    key = requests.new_key()
    answer = _certified(address, ca, tokens.id_token, key)
    check_clock(seconds(answer.time), clock())
    files.folder(directory, 0o700)
    write_identity(directory, "user", checked_cas(answer.trusted), requests.key_pem(key), answer.certificate)
    _keep(directory / REFRESH, tokens.refresh_token)
    settings = directory / "client.toml"
    values = {
        "controller": answer.controller,
        "ca": "ca.pem",
        "cert": "user.pem",
        "key": "user.key",
        "enrolment": answer.enrolment,
        "oidc": True,
    }
    files.write(settings, files.toml("Made by `holdfast login --oidc`.", values), 0o600)
    return enrolled(settings, answer)


def renew(address: str, own: TlsFiles) -> None:
    """Replace the certificate by the next one, if the provider still vouches for the user.

    Raises ``HoldfastError``; the certificate that is there stays then.
    """
    kept = own.cert.with_name(REFRESH)
    with _alone(kept):
        if time.time() < certificate.read(own.cert).renew_at:
            return  # another process has renewed it meanwhile
        try:
            token = kept.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ended() from error
        ca, _, key_pem = own.read()
        key = serialization.load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{own.key} is no elliptic curve key.")
        found = identity_provider.refresh(_provider(address, ca), token)
        _keep(kept, found.refresh_token)  # first: the provider may not accept the old one any more
        answer = _certified(address, ca, found.id_token, key)
        if answer.trusted != ca:
            files.write(own.ca, checked_cas(answer.trusted), 0o644)
        files.write(own.cert, answer.certificate, 0o644)


def ended() -> Unauthenticated:
    """The refusal of a certificate that can't be renewed without its user."""
    return Unauthenticated("Your sign-in has ended.", fix="Sign in again: holdfast login --oidc")


def _provider(address: str, ca: bytes) -> ProviderInfo:
    try:
        with pinning.channel(address, ca) as link:
            stub = enrolment_pb2_grpc.EnrolmentServiceStub(link)
            found = stub.GetProvider(enrolment_pb2.GetProviderRequest(), timeout=pinning.CALL_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error, endpoint=address, within_s=pinning.CALL_S) from error
    return ProviderInfo(found.issuer, found.client_id, tuple(found.scopes), found.ca)


def _certified(
    address: str, ca: bytes, id_token: str, key: ec.EllipticCurvePrivateKey
) -> enrolment_pb2.SignInResponse:
    asked = enrolment_pb2.SignInRequest(id_token=id_token, request=requests.request(key))
    try:
        with pinning.channel(address, ca) as link:
            return enrolment_pb2_grpc.EnrolmentServiceStub(link).SignIn(asked, timeout=pinning.CALL_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error, endpoint=address, within_s=pinning.CALL_S) from error


def _keep(path: Path, token: str) -> None:
    """Keep a refresh token; without one, none of an earlier sign-in stays."""
    if token:
        files.write(path, token.encode(), 0o600)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Within, no other process of this user renews: many providers accept a refresh token once."""
    try:
        descriptor = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"Cannot write in {path.parent}: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
