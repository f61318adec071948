"""Reads a certificate's dates and identity with the standard library alone.

For the agent, which must stay small, and for a command line that has to start at once; code that has to trust a
certificate leaves that to TLS. Just enough of DER (X.690) to walk to the validity of a certificate (RFC 5280).
"""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from holdfast._base import identity
from holdfast._base.identity import BACKDATED_S, Credential, Identity
from holdfast.errors import ConfigError, Unauthenticated

_URI_TAG = 0x86
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def read(path: Path) -> Credential:
    """The certificate in a PEM file. Raises ``ConfigError`` that names the file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from error
    try:
        return parse(text)
    except (ValueError, Unauthenticated) as error:
        raise ConfigError(f"{path} is no certificate of a cluster: {error}") from error


def ends_at(path: Path) -> float:
    """When the first certificate in a PEM file ends; a CA's, which names no party, will do. Raises ``ConfigError``."""
    try:
        return validity(path.read_text())[1]
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from error


def parse(pem: str) -> Credential:
    """The first certificate of a PEM text. Raises ``ValueError``, and ``Unauthenticated`` if it names no party."""
    body = _body(pem)
    begins_at, ends_at = _validity(body)
    return Credential(_identity(body), begins_at + BACKDATED_S, ends_at)


def validity(pem: str) -> tuple[float, float]:
    """(begin, end) of the first certificate of a PEM text, whichever party it names. Raises ``ValueError``."""
    return _validity(_body(pem))


def _body(pem: str) -> bytes:
    start = pem.find("-----BEGIN CERTIFICATE-----")
    end = pem.find("-----END CERTIFICATE-----", start)
    if start < 0 or end < 0:
        raise ValueError("it is not in PEM form.")
    der = ssl.PEM_cert_to_DER_cert(pem[start : end + len("-----END CERTIFICATE-----")])
    _, certificate, _ = _element(der)
    _, body, _ = _element(certificate)
    return body


def _validity(body: bytes) -> tuple[float, float]:
    tag, _, after = _element(body)
    rest = after if tag == _VERSION else body
    for _ in ("serial number", "signature", "issuer"):
        _, _, rest = _element(rest)
    tag, found, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("its validity is missing.")
    begin_tag, begin, after = _element(found)
    end_tag, until, _ = _element(after)
    return _time(begin_tag, begin), _time(end_tag, until)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """(tag, content, what follows) of the first element."""
    if len(data) < 2:
        raise ValueError("it is cut short.")
    size, start = data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[2 : 2 + count]), 2 + count
    if start + size > len(data):
        raise ValueError("it is cut short.")
    return data[0], data[start : start + size], data[start + size :]


def _time(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits for the year: RFC 5280, 4.1.2.5.1
        text = ("19" if text >= "50" else "20") + text
    # Not strptime, which takes six times as long: a controller reads a thousand when a thousand hosts come back.
    at = datetime.datetime.fromisoformat(f"{text[:8]}T{text[8:]}")
    return at.replace(tzinfo=datetime.UTC).timestamp()


def _identity(body: bytes) -> Identity:
    """The one URI of ours among its names: tag, length, text. An identity is shorter than 128 bytes or so."""
    found = []
    at = body.find(b"holdfast://")
    while at >= 2:
        header = 3 if body[at - 2] == 0x81 else 2
        if body[at - header] == _URI_TAG:
            found.append(body[at : at + body[at - 1]].decode("ascii"))
        at = body.find(b"holdfast://", at + 1)
    return identity.of_uris(found)
