"""Trust by hash: takes the cluster's CA from an unverified server and accepts it only if its hash is the known one.

First that server's own certificate is fetched, without belief. A call over a link that trusts just that one brings
the CA, which must have the hash that the admin's line names and must have issued the certificate. Everything that
matters, the token first of all, is sent only then, over a link that trusts that CA alone.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import re
import ssl

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from holdfast._base.rpc_status import OVERLOADED, from_rpc_error, is_mute
from holdfast._security.enrolment.requests import MALFORMED
from holdfast._security.tls import SERVER_NAME
from holdfast.errors import ConfigError, HoldfastError, InvalidInput, Unauthenticated, Unavailable, Violation
from holdfast.v1 import enrolment_pb2, enrolment_pb2_grpc

CALL_S = 20.0
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_OPTIONS = (
    ("grpc.ssl_target_name_override", SERVER_NAME),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


def fetch_authority(address: str, ca_hash: str, now: float) -> bytes:
    """The CA's certificate in PEM. ``address`` is HOST:PORT of the enrolment service, ``now`` epoch seconds.

    Raises ``InvalidInput``, ``Unavailable``, ``ConfigError`` for a clock that is wrong, and ``Unauthenticated`` for
    a CA that is not the one meant.
    """
    if not _HASH.fullmatch(ca_hash.strip().lower()):
        problem = "is not sha256: and 64 hexadecimal digits"
        raise InvalidInput([Violation("ca-hash", problem, "paste the whole line that the admin was given")])
    shown = _certificate_of(address)
    _check_clock(shown, address, now)
    pem = shown.public_bytes(serialization.Encoding.PEM)
    try:
        with channel(address, pem) as link:
            stub = enrolment_pb2_grpc.EnrolmentServiceStub(link)
            ca_pem = stub.GetAuthority(enrolment_pb2.GetAuthorityRequest(), timeout=CALL_S).ca
    except grpc.RpcError as error:
        raise _no_enrolment(error, address) from error
    try:
        ca = x509.load_pem_x509_certificate(ca_pem)
        found = hashlib.sha256(ca.public_bytes(serialization.Encoding.DER)).hexdigest()
        if f"sha256:{found}" != ca_hash.strip().lower():
            raise Unauthenticated(
                f"The CA at {address} is not the one of the line that you pasted: its hash is sha256:{found}.",
                fix="Check the address and ask the admin for a new line; the connection may be intercepted.",
            )
        shown.verify_directly_issued_by(ca)
    except MALFORMED as error:
        raise Unauthenticated(
            f"What listens at {address} has no certificate of the CA that it shows.",
            fix="Check the address; the connection may be intercepted.",
        ) from error
    return ca.public_bytes(serialization.Encoding.PEM)


def check_clock(address: str, now: float) -> None:
    """Raise ``ConfigError`` if a link to ``address`` fails because of our clock; an unreachable address is ignored."""
    with contextlib.suppress(Unavailable):
        _check_clock(_certificate_of(address), address, now)


def channel(address: str, root: bytes) -> grpc.Channel:
    """A link to the enrolment service that trusts ``root`` alone."""
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(root_certificates=root), _OPTIONS)


def _certificate_of(address: str) -> x509.Certificate:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput([Violation("controller", f"{address!r} is not HOST:PORT", "as in 10.0.0.1:7444")])
    try:
        pem = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=CALL_S)
    except TimeoutError as error:
        if "handshake" not in str(error):
            fix = "Check the address, and firewalls in between."
            raise Unavailable(f"{address} was not reached within {CALL_S:g} s.", fix=fix) from error
        problem = f"What listens at {address} takes connections, but did not answer within {CALL_S:g} s."
        raise Unavailable(problem, fix=OVERLOADED) from error
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        fix = "Check the address, and that holdfast-controller runs there with enrolment_listen."
        raise Unavailable(f"Nothing at {address} answers as a controller does: {what}.", fix=fix) from error
    return x509.load_pem_x509_certificate(pem.encode())


def _check_clock(shown: x509.Certificate, address: str, now: float) -> None:
    """A certificate that isn't valid yet means a clock that is behind; a handshake only says that it failed."""
    clock = datetime.datetime.fromtimestamp(now, datetime.UTC)
    says = f"The clock of this machine says {clock:%Y-%m-%d %H:%M} UTC"
    if clock < shown.not_valid_before_utc:
        begin = f"{shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise ConfigError(f"{says}; the certificate at {address} begins only at {begin}.", fix=_CLOCK)
    if clock > shown.not_valid_after_utc:
        end = f"{shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        fix = f"{_CLOCK} If it is right, the controller's certificate has to be renewed."
        raise ConfigError(f"{says}; the certificate at {address} has ended at {end}.", fix=fix)


def _no_enrolment(error: grpc.RpcError, address: str) -> HoldfastError:
    found = from_rpc_error(error, endpoint=address, within_s=CALL_S)
    if is_mute(error):
        return found
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED):
        fix = "Use the address of the admin's line: that of enrolment_listen, which is not that of listen."
        return Unavailable(f"What listens at {address} issues no certificates.", fix=fix)
    return found


_CLOCK = "Set the clock (timedatectl set-ntp true), then try again."
