"""The next certificate for a key that has one. The key stays, so one rename changes everything at once."""

from __future__ import annotations

import time

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast._base.identity import Credential
from holdfast._base.rpc_status import from_rpc_error
from holdfast._security import certificate
from holdfast._security.enrolment import files, pinning, requests
from holdfast._security.tls import TlsFiles
from holdfast.errors import ConfigError
from holdfast.v1 import enrolment_pb2, enrolment_pb2_grpc


def renew(address: str, own: TlsFiles) -> Credential:
    """Replace the certificate by the next one, from the enrolment service at ``address``.

    Raises ``HoldfastError``; the certificate that is there stays then.
    """
    ca, present, key_pem = own.read()
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{own.key} is no private key in PEM form.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{own.key} is no elliptic curve key.")
    asked = enrolment_pb2.RenewRequest(certificate=present, request=requests.request(key), takes_trusted=True)
    try:
        with pinning.channel(address, ca) as link:
            answer = enrolment_pb2_grpc.EnrolmentServiceStub(link).Renew(asked, timeout=pinning.CALL_S)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            pinning.check_clock(address, time.time())
        raise from_rpc_error(error, endpoint=address, within_s=pinning.CALL_S) from error
    fresh = certificate.parse(answer.certificate.decode())
    if answer.trusted and answer.trusted != ca:
        files.write(own.ca, checked_cas(answer.trusted), 0o644)  # first: the certificate may be of a new one
    files.write(own.cert, answer.certificate, 0o644)
    return fresh


def checked_cas(trusted: bytes) -> bytes:
    """The CAs that a controller has sent, once each is known to be one. Raises ``ConfigError``."""
    try:
        for each in x509.load_pem_x509_certificates(trusted):
            if not each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
                raise ValueError("one of them is none")
    except (ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"The controller sent CAs that can't be trusted: {error}.") from error
    return trusted
