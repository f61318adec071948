"""Signing requests: how the holder of a key asks for a certificate, and what the controller takes from that."""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.errors import InvalidInput, Violation

MAX_BYTES = 8192
MALFORMED = (
    *(ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, x509.AttributeNotFound),
)
"""Raised for certificates and requests that are not what they should be; they have no base in common."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key of the kind that all parties have."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key as it is kept in a file."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A signing request in PEM. It names no party; the party follows from a token or an older certificate."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def requested_key(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a request whose sender has proven to hold it. Raises ``InvalidInput``."""
    try:
        if len(pem) > MAX_BYTES:
            raise ValueError(f"it is longer than {MAX_BYTES} bytes")
        found = x509.load_pem_x509_csr(pem)
        key = found.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("its key is none on the curve P-256")
        if not found.is_signature_valid:
            raise ValueError("its signature is not that of its key")
    except MALFORMED as error:
        violation = Violation(
            "request", f"is no signing request: {error}", "use holdfast-agent join or holdfast login"
        )
        raise InvalidInput([violation]) from error
    return key


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """Fingerprint of a public key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()
