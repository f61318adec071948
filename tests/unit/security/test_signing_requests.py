"""What strangers send as a signing request is one of ours, or refused in words."""

from __future__ import annotations

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast._security.enrolment import requests
from holdfast.errors import InvalidInput

EC_KEY = bytes.fromhex("06072a8648ce3d0201")
UNKNOWN_KEY = bytes.fromhex("0607060848ce3d0201")
P_256 = bytes.fromhex("06082a8648ce3d030107")
UNKNOWN_CURVE = bytes.fromhex("06082a8648ce3d030163")


def changed(old: bytes, new: bytes) -> bytes:
    """A request of ours with other bytes in it."""
    der = x509.load_pem_x509_csr(requests.request(requests.new_key())).public_bytes(serialization.Encoding.DER)
    assert old in der
    body = base64.encodebytes(der.replace(old, new))
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + body + b"-----END CERTIFICATE REQUEST-----\n"


def test_the_key_of_a_request_is_taken_from_it() -> None:
    key = requests.new_key()
    assert requests.requested_key(requests.request(key)) == key.public_key()


@pytest.mark.parametrize(
    "pem",
    [
        *(b"", b"x" * 9000, changed(EC_KEY, UNKNOWN_KEY), changed(P_256, UNKNOWN_CURVE)),
        changed(b"\x02\x01\x00", b"\x02\x01\x07"),
    ],
    ids=["none", "too long", "a key of an unknown kind", "an unknown curve", "an unknown version"],
)
def test_anything_else_is_refused(pem: bytes) -> None:
    with pytest.raises(InvalidInput, match="is no signing request"):
        requests.requested_key(pem)


def test_a_key_on_another_curve_is_refused() -> None:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    made = builder.sign(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256())
    with pytest.raises(InvalidInput, match="P-256"):
        requests.requested_key(made.public_bytes(serialization.Encoding.PEM))
